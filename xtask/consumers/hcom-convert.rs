//! The reductions of a collective call have names and sizes of their own.

fn main() {
    let root = hcom_convert::Root::Group(1);
    println!("{root:?}\nok");
}
