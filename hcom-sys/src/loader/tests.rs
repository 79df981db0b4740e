use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::bindings::{ACL_SUCCESS, aclError};
use crate::entry;

#[path = "../../tests/common/mod.rs"]
mod common;

fn build(dir: &Path, name: &str) -> PathBuf {
    let source =
        "#include \"acl/acl.h\"\naclError aclInit(const char *path) { (void)path; return 0; }\n";
    common::compile(dir, name, source, &["-shared", "-fPIC"])
}

extern "C" fn init(_path: *const std::ffi::c_char) -> aclError {
    ACL_SUCCESS
}

static TABLE: Table = Table {
    name: "stub",
    version: "1.2.3",
    symbols: &[entry::aclInit(init)],
};

/// A search with these variables set.
fn searched(
    explicit: Option<&Path>,
    variables: &[(&str, &Path)],
    fallback: Option<&'static Table>,
) -> Result<Library, LoadError> {
    let variables: HashMap<_, _> = variables.iter().copied().collect();
    search(
        explicit,
        |name| variables.get(name).map(|path| path.as_os_str().to_owned()),
        fallback,
    )
}

#[test]
fn the_search_goes_from_the_explicit_path_to_the_fallback() {
    let dir = tempfile::tempdir().unwrap();
    let named = build(dir.path(), "libnamed.so");
    let home = dir.path().join("home");
    std::fs::create_dir_all(home.join("lib64")).unwrap();
    build(&home.join("lib64"), "libacl_rt.so");
    let variables = [
        (LIBRARY_PATH_VARIABLE, named.as_path()),
        (ASCEND_HOME_VARIABLE, home.as_path()),
    ];
    let origin = |explicit, variables: &[_]| {
        searched(explicit, variables, Some(&TABLE))
            .unwrap()
            .origin()
    };
    assert_eq!(origin(Some(&named), &variables), Origin::Explicit);
    assert_eq!(origin(None, &variables), Origin::LibraryPath);
    assert_eq!(origin(None, &variables[1..]), Origin::AscendHome);
    assert_eq!(origin(None, &[]), Origin::Fallback);
}

#[test]
fn an_order_that_fails_ends_the_search() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    let error = searched(Some(&nowhere), &[], Some(&TABLE)).unwrap_err();
    assert_eq!(error.tried.len(), 1, "{error}");
    let variables = [(LIBRARY_PATH_VARIABLE, nowhere.as_path())];
    let error = searched(None, &variables, Some(&TABLE)).unwrap_err();
    assert!(error.to_string().contains("HCOM_LIBRARY_PATH /"), "{error}");
}

#[test]
fn a_toolkit_that_does_not_open_is_passed_over_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let variables = [(ASCEND_HOME_VARIABLE, dir.path())];
    let library = searched(None, &variables, Some(&TABLE)).unwrap();
    assert_eq!(library.origin(), Origin::Fallback);
    assert_eq!(library.skipped().len(), 1);
    assert!(library.skipped()[0].place.starts_with("ASCEND_HOME_PATH /"));
}

#[test]
fn a_search_without_any_library_lists_every_place() {
    let error = searched(None, &[], None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no Ascend library found\n  explicit path: not given\n  HCOM_LIBRARY_PATH: not set\n  \
         ASCEND_HOME_PATH: not set\n  registered fallback: none registered"
    );
}
