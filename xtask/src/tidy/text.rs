//! Rules about the text of files: length, whitespace, words, docs, ignored tests, the README's commands.

use super::{File, Finding};

const MOST_LINES: usize = 600;

/// Words that must not reach a commit, with the reason. Split, so that this file passes its own rule.
const FORBIDDEN: [(&str, &str); 6] = [
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/tmp/", "hcom"), "a path of one machine"),
    (concat!("TO", "DO"), "finish it or file it"),
    (concat!("FIX", "ME"), "fix it or file it"),
    (concat!("X", "XX"), "say what is wrong, or fix it"),
    (
        concat!("unimplemen", "ted!"),
        "implement it or return an error",
    ),
];

/// The commands that a newcomer types first.
const README_COMMANDS: [&str; 2] = ["cargo run --release -- demo", "cargo xtask ci"];

/// All rules that look at one file.
pub(super) fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    if file.is_generated() {
        return findings;
    }
    length(file, &mut findings);
    whitespace(file, &mut findings);
    words(file, &mut findings);
    ignored_tests(file, &mut findings);
    crate_docs(file, &mut findings);
    findings
}

fn length(file: &File, findings: &mut Vec<Finding>) {
    let source = [".rs", ".py", ".c", ".h"]
        .iter()
        .any(|end| file.path.ends_with(end));
    let lines = file.text.lines().count();
    if source && lines > MOST_LINES {
        findings.push(Finding::file(
            file,
            format!("{lines} lines, at most {MOST_LINES}: split it by what a reader looks for"),
        ));
    }
}

fn whitespace(file: &File, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::line(
                file,
                index + 1,
                "whitespace at the end of the line",
            ));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(Finding::file(file, "no newline at the end of the file"));
    }
}

fn words(file: &File, findings: &mut Vec<Finding>) {
    // Checksums of a lock file may spell anything.
    if file.path.ends_with("Cargo.lock") {
        return;
    }
    for (index, line) in file.text.lines().enumerate() {
        for (word, reason) in FORBIDDEN {
            if line.contains(word) {
                findings.push(Finding::line(
                    file,
                    index + 1,
                    format!("`{word}`: {reason}"),
                ));
            }
        }
    }
}

fn ignored_tests(file: &File, findings: &mut Vec<Finding>) {
    if !file.is_rust() {
        return;
    }
    for (index, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with(concat!("#[", "ignore")) {
            findings.push(Finding::line(
                file,
                index + 1,
                "an ignored test tests nothing: make it run, or assert the failure that is expected",
            ));
        }
    }
}

fn crate_docs(file: &File, findings: &mut Vec<Finding>) {
    if file.path.ends_with("src/lib.rs") && !file.text.starts_with("//! ") {
        findings.push(Finding::file(
            file,
            "a lib.rs opens with what the crate is: `//! …` on line 1",
        ));
    }
}

/// The root README names the commands that a newcomer types first.
pub(super) fn readme(files: &[File]) -> Vec<Finding> {
    let readme = files.iter().find(|file| file.path == "README.md");
    README_COMMANDS
        .iter()
        .filter(|command| !readme.is_some_and(|file| file.text.contains(**command)))
        .map(|command| Finding {
            place: "README.md".into(),
            message: format!("does not show `{command}`"),
        })
        .collect()
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
    fn a_clean_file_passes() {
        assert!(findings("hcom-ir/src/lib.rs", "//! The graph.\n").is_empty());
    }

    #[test]
    fn a_long_file_is_found() {
        let text = "//\n".repeat(601);
        assert_eq!(
            findings("hcom/src/cli.rs", &text),
            ["hcom/src/cli.rs: 601 lines, at most 600: split it by what a reader looks for"]
        );
        assert!(findings("hcom/src/cli.rs", &"//\n".repeat(600)).is_empty());
        assert!(findings("docs/long.md", &text).is_empty());
        assert!(findings("hcom-sys/src/bindings.rs", &text).is_empty());
    }

    #[test]
    fn whitespace_at_line_and_file_ends_is_found() {
        assert_eq!(
            findings("a.md", "a \nb\n"),
            ["a.md:1: whitespace at the end of the line"]
        );
        assert_eq!(
            findings("a.md", "a\r\n"),
            ["a.md:1: whitespace at the end of the line"]
        );
        assert_eq!(
            findings("a.md", "a"),
            ["a.md: no newline at the end of the file"]
        );
    }

    #[test]
    fn every_forbidden_word_is_found() {
        for (word, _) in FORBIDDEN {
            assert_eq!(
                findings("a.md", &format!("see {word}x\n")).len(),
                1,
                "{word}"
            );
        }
        assert!(findings("Cargo.lock", &format!("{}\n", FORBIDDEN[2].0)).is_empty());
    }

    #[test]
    fn an_ignored_test_is_found() {
        let attribute = concat!("    #[", "ignore = \"slow\"]\n");
        assert_eq!(findings("hcom/tests/a.rs", attribute).len(), 1);
        assert!(findings("a.md", attribute).is_empty());
    }

    #[test]
    fn a_crate_without_docs_is_found() {
        assert_eq!(findings("hcom-ir/src/lib.rs", "pub mod graph;\n").len(), 1);
        assert!(findings("hcom-ir/src/graph.rs", "pub mod graph;\n").is_empty());
    }

    #[test]
    fn a_readme_without_its_commands_is_found() {
        assert_eq!(readme(&[]).len(), 2);
        let half = File {
            path: "README.md".into(),
            text: README_COMMANDS[0].into(),
        };
        assert_eq!(
            readme(&[half])[0].to_string(),
            "README.md: does not show `cargo xtask ci`"
        );
    }
}
