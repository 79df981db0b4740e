//! Settings come from anywhere, and a mistake in them is explained.

use hcom_runtime::Settings;

fn main() {
    let settings =
        Settings::from_lookup(|name| (name == "HCOM_TIMEOUT").then(|| "2.5".into())).unwrap();
    assert_eq!(settings.timeout.as_secs_f64(), 2.5);
    let error =
        Settings::from_lookup(|name| (name == "HCOM_TIMEOUT").then(|| "soon".into())).unwrap_err();
    assert!(
        error.to_string().contains("positive number of seconds"),
        "{error}"
    );
    println!("ok");
}
