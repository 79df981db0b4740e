//! A program that has not been initialised is told so.

use hcom_patch::dist;

fn main() {
    let error = dist::world().unwrap_err();
    println!("{error}\nok");
}
