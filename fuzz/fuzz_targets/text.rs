#![no_main]
//! libFuzzer: see `text` in the module below.

#[allow(dead_code, reason = "each target drives one of its functions")]
#[path = "../../hcom-ir/tests/it/fuzzed.rs"]
mod fuzzed;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzed::text(data));
