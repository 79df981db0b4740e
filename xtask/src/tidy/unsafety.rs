//! Unsafe code: only in the files that are meant for it, every block with its reason.

use super::{File, Finding};

/// The files that may contain unsafe code. A folder ends with `/`.
const ALLOWED: [&str; 19] = [
    "hcom-sys/src/bindings.rs",
    "hcom-sys/src/table.rs",
    "hcom-sys/src/loader.rs",
    "hcom-sys/src/symbol.rs",
    "hcom-sys/tests/",
    "hcom-sys/fake/src/shm.rs",
    "hcom-sys/fake/src/futex.rs",
    "hcom-sys/fake/src/span.rs",
    "hcom-sys/fake/src/span/",
    "hcom-sys/fake/src/simd.rs",
    "hcom-sys/fake/src/ffi/",
    "hcom-sys/fake/src/aclnn/tests/",
    "hcom-sys/fake/tests/",
    "hcom-sys/fake-so/src/lib.rs",
    "hcom-runtime/src/raw.rs",
    "hcom-runtime/src/raw/",
    "hcom-runtime/src/custom.rs",
    "hcom-patch/src/foreign.rs",
    "hcom-py/src/torch.rs",
];

/// How far above a block its reason may end: a statement may open on an earlier line.
const NEAR: usize = 6;

/// Checks one Rust file.
pub(super) fn check(file: &File) -> Vec<Finding> {
    if !file.is_rust() || file.is_generated() {
        return Vec::new();
    }
    let allowed = ALLOWED.iter().any(|path| match path.ends_with('/') {
        true => file.path.starts_with(path),
        false => file.path == *path,
    });
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = code(line);
        for after in after_unsafe(&code) {
            if !allowed {
                findings.push(Finding::line(
                    file,
                    index + 1,
                    "unsafe code belongs in the files that xtask/src/tidy/unsafety.rs lists",
                ));
            } else if (after.starts_with('{') || after.starts_with("impl"))
                && !has_reason(&lines, index)
            {
                findings.push(Finding::line(
                    file,
                    index + 1,
                    "no SAFETY comment above: name the fact and who guarantees it",
                ));
            }
        }
    }
    findings
}

/// The line without its `//` comment and with the contents of its string literals blanked.
fn code(line: &str) -> String {
    let mut code = String::with_capacity(line.len());
    let mut characters = line.chars().peekable();
    let mut in_string = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' if in_string => {
                characters.next();
            }
            '"' => {
                in_string = !in_string;
                code.push('"');
            }
            '/' if !in_string && characters.peek() == Some(&'/') => break,
            _ if in_string => {}
            _ => code.push(character),
        }
    }
    code
}

/// What follows each word `unsafe` of the code, without leading space.
fn after_unsafe(code: &str) -> impl Iterator<Item = &str> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices("unsafe")
        .filter_map(move |(start, word)| {
            let before = code[..start].chars().next_back();
            let after = &code[start + word.len()..];
            let whole = !before.is_some_and(is_word) && !after.chars().next().is_some_and(is_word);
            whole.then(|| after.trim_start())
        })
}

fn has_reason(lines: &[&str], index: usize) -> bool {
    let mut above = lines[..=index].iter().rev();
    let near = above
        .by_ref()
        .take(NEAR)
        .any(|line| line.contains("SAFETY:"));
    // A long comment right above the statement counts whole.
    near || lines[..index]
        .iter()
        .rev()
        .take_while(|line| line.trim_start().starts_with("//"))
        .any(|line| line.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file = File {
            path: path.into(),
            text: text.into(),
        };
        check(&file).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unsafe_code_in_another_file_is_found() {
        assert_eq!(
            findings(
                "hcom-ir/src/arena.rs",
                "fn f() {\n    // SAFETY: none.\n    unsafe { g() }\n}\n"
            ),
            [
                "hcom-ir/src/arena.rs:3: unsafe code belongs in the files that xtask/src/tidy/unsafety.rs lists"
            ]
        );
        assert_eq!(
            findings("hcom-runtime/src/launch.rs", "unsafe fn f() {}\n").len(),
            1
        );
    }

    #[test]
    fn a_block_or_impl_without_reason_is_found() {
        let message = "no SAFETY comment above: name the fact and who guarantees it";
        assert_eq!(
            findings("hcom-runtime/src/raw.rs", "let x =\n    unsafe { f() };\n"),
            [format!("hcom-runtime/src/raw.rs:2: {message}")]
        );
        assert_eq!(
            findings(
                "hcom-sys/fake/src/ffi/hccl.rs",
                "unsafe impl Send for A {}\n"
            ),
            [format!("hcom-sys/fake/src/ffi/hccl.rs:1: {message}")]
        );
    }

    #[test]
    fn a_reason_above_counts_through_the_statement_and_a_long_comment() {
        assert!(
            findings(
                "hcom-runtime/src/raw.rs",
                "// SAFETY: a.\nlet x =\n    unsafe { f() };\n"
            )
            .is_empty()
        );
        let long = format!("// SAFETY: a\n{}unsafe {{ f() }}\n", "// b\n".repeat(9));
        assert!(findings("hcom-runtime/src/raw.rs", &long).is_empty());
        let far = format!("// SAFETY: a\n{}unsafe {{ f() }}\n", "g();\n".repeat(9));
        assert_eq!(findings("hcom-runtime/src/raw.rs", &far).len(), 1);
    }

    #[test]
    fn comments_strings_and_longer_words_are_no_unsafe_code() {
        let text = "// unsafe { }\n#![deny(unsafe_code)]\nlet a = \"unsafe { \\\" unsafe\";\nmy_unsafe();\n";
        assert!(findings("hcom-ir/src/arena.rs", text).is_empty());
    }
}
