//! What went wrong: a code of the C interface and a text for people, kept per thread for `aclGetRecentErrMsg`.

use std::cell::{Cell, RefCell};
use std::ffi::{CString, c_char};
use std::ptr;

/// A refused call or a failed task: the code that the C interface answers with, and why.
///
/// The code is an `aclError` for calls of the runtime and an `HcclResult` for calls of the collective library; the
/// numbers never meet, because each exported function knows which of the two it answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The code of the C interface.
    pub code: i32,
    /// One sentence: what was expected and what came.
    pub text: String,
}

impl Failure {
    /// A failure with its text.
    pub(crate) fn new(code: i32, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
        }
    }
}

/// The usual result inside this crate.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Shorthand for `Err(Failure::new(..))`.
pub(crate) fn refuse<T>(code: i32, text: impl Into<String>) -> Outcome<T> {
    Err(Failure::new(code, text))
}

thread_local! {
    static CODE: Cell<i32> = const { Cell::new(0) };
    static PENDING: RefCell<Option<String>> = const { RefCell::new(None) };
    static HANDED_OUT: RefCell<CString> = RefCell::default();
}

/// Keeps `message` as this thread's last error text and returns `code`.
pub(crate) fn fail(code: i32, message: impl Into<String>) -> i32 {
    // A handle may be dropped while its thread ends, when nobody can ask for the text any more.
    let _ = PENDING.try_with(|pending| pending.replace(Some(message.into())));
    CODE.set(code);
    code
}

/// The code of this thread's last error, 0 without one; `take` forgets it.
pub(crate) fn last_code(take: bool) -> i32 {
    if take { CODE.take() } else { CODE.get() }
}

/// Takes this thread's last error text.
pub(crate) fn last() -> Option<String> {
    PENDING.try_with(RefCell::take).ok().flatten()
}

/// Takes this thread's last error text as a C string, null when there is none. It stays valid until the next call on
/// this thread.
pub(crate) fn last_as_c() -> *const c_char {
    match last() {
        None => ptr::null(),
        Some(text) => HANDED_OUT
            .try_with(|slot| {
                let mut slot = slot.borrow_mut();
                *slot = CString::new(text.replace('\0', " ")).unwrap_or_default();
                slot.as_ptr()
            })
            .unwrap_or(ptr::null()),
    }
}
