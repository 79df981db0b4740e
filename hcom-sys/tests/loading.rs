//! Libraries found by name: stubs compiled here, and a table.

#![expect(unsafe_code, reason = "the functions found are called")]

mod common;

use std::ffi::c_char;
use std::path::{Path, PathBuf};

use hcom_sys::bindings::{ACL_SUCCESS, aclError};
use hcom_sys::{Library, Origin, Since, Table, entry};

const RUNTIME: &str = "#include \"acl/acl.h\"\n\
    aclError aclInit(const char *path) { (void)path; return 0; }\n\
    aclError aclrtGetDeviceCount(uint32_t *count) { *count = 7; return 0; }\n";
const HCCL: &str = "#include \"hccl/hccl.h\"\n\
    const char *HcclGetErrorString(HcclResult code) { (void)code; return \"stub\"; }\n";
const OPERATOR: &str = "#include \"aclnnop/aclnn_abs.h\"\n\
    aclnnStatus aclnnAbs(void *w, uint64_t n, aclOpExecutor *e, aclrtStream s)\n\
    { (void)w; (void)n; (void)e; (void)s; return 0; }\n";

fn build(dir: &Path, name: &str, source: &str) -> PathBuf {
    common::compile(dir, name, source, &["-shared", "-fPIC"])
}

fn devices(library: &Library) -> u32 {
    let mut count = 0;
    let function = library.aclrtGetDeviceCount().unwrap();
    // SAFETY: both implementations below write one u32.
    assert_eq!(unsafe { function(&raw mut count) }, ACL_SUCCESS);
    count
}

unsafe extern "C" fn init(_path: *const c_char) -> aclError {
    ACL_SUCCESS
}

unsafe extern "C" fn device_count(count: *mut u32) -> aclError {
    // SAFETY: `devices` passes the address of a local.
    unsafe { count.write(3) };
    ACL_SUCCESS
}

static TABLE: Table = Table {
    name: "stub",
    version: "1.2.3",
    symbols: &[
        entry::aclInit(init),
        entry::aclrtGetDeviceCount(device_count),
    ],
};

#[test]
fn a_table_answers_by_name_and_names_what_it_lacks() {
    let library = Library::from_table(&TABLE);
    assert_eq!(devices(&library), 3);
    assert_eq!(devices(&library), 3);
    assert!(library.has("aclInit"));
    assert!(!library.has("HcclAllReduce"));
    assert!(!library.has("no such function"));
    assert_eq!((library.origin(), library.path()), (Origin::Explicit, None));
    let error = library.HcclCommSymWinGet().unwrap_err();
    assert_eq!(error.symbol, "HcclCommSymWinGet");
    assert_eq!(error.since, Since::Hcomm202604);
    assert_eq!(
        error.to_string(),
        "the library has no function HcclCommSymWinGet (in the HCCL sources of April 2026 and later)\n  \
         stub 1.2.3: does not implement it"
    );
}

#[test]
fn a_folder_is_asked_by_the_names_of_a_release() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = build(dir.path(), "libascendcl.so", RUNTIME);
    build(dir.path(), "libhccl.so", HCCL);
    for path in [dir.path(), runtime.as_path()] {
        let library = Library::open(path).unwrap();
        assert_eq!(devices(&library), 7);
        assert!(library.has("HcclGetErrorString"));
        assert_eq!(library.path(), Some(path));
        let error = library.aclrtValueWrite().unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("the library has no function aclrtValueWrite (newer than CANN 8.0"),
            "{text}"
        );
        assert!(text.contains("libacl_rt.so: no such file"), "{text}");
        assert!(
            text.contains("libascendcl.so: does not export aclrtValueWrite"),
            "{text}"
        );
    }
}

#[test]
fn a_file_of_another_name_stands_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = build(dir.path(), "libanything.so", RUNTIME);
    build(dir.path(), "libhccl.so", HCCL);
    let library = Library::open(&file).unwrap();
    assert_eq!(devices(&library), 7);
    let error = library.HcclGetErrorString().unwrap_err();
    assert_eq!(error.tried.len(), 1, "{error}");
}

#[test]
fn layouts_of_operator_libraries_are_not_mixed() {
    let dir = tempfile::tempdir().unwrap();
    build(dir.path(), "libacl_rt.so", RUNTIME);
    build(dir.path(), "libopapi_math.so", OPERATOR);
    assert!(Library::open(dir.path()).unwrap().has("aclnnAbs"));
    build(dir.path(), "libopapi.so", HCCL);
    let error = Library::open(dir.path()).unwrap().aclnnAbs().unwrap_err();
    assert!(!error.to_string().contains("libopapi_math.so"), "{error}");
}

#[test]
fn what_is_no_runtime_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("nowhere");
    let error = Library::open(&missing).unwrap_err().to_string();
    assert!(error.contains("nowhere: No such file"), "{error}");
    let error = Library::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("libacl_rt.so: no such file"), "{error}");
    let other = build(dir.path(), "libother.so", HCCL);
    let error = Library::open(&other).unwrap_err().to_string();
    assert!(error.contains("does not export aclInit"), "{error}");
    let text = dir.path().join("text.so");
    std::fs::write(&text, "no shared object").unwrap();
    let error = Library::open(&text).unwrap_err().to_string();
    assert!(error.contains("text.so"), "{error}");
}

#[test]
fn threads_may_resolve_the_same_function_at_once() {
    let library = Library::from_table(&TABLE);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(devices(&library), 3));
        }
    });
}
