//! Looks for a library where there is none and reads the reasons.

fn main() {
    let error = hcom_sys::Library::open("/no/such/library.so").unwrap_err();
    assert!(error.to_string().contains("/no/such/library.so"), "{error}");
    println!("ok");
}
