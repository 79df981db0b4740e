//! `hcom env --abi`: how much of what real programs use the library has.

use hcom_fake::abi::{SURFACE, Standing};
use hcom_sys::Library;
use serde_json::{Value, json};

/// Functions by what a call of them does.
#[derive(Default)]
pub(super) struct Report {
    /// As documented.
    works: usize,
    /// Accepted, with what does not follow.
    kept: Vec<(&'static str, &'static str)>,
    /// Not supported, with the reason.
    refused: Vec<(&'static str, &'static str)>,
    /// Not in the library.
    missing: Vec<&'static str>,
}

/// Asks the library for every function of the list. What a function does is known of the CPU implementation only; of
/// another library, that it is there.
pub(super) fn report(library: &Library) -> Report {
    let ours = library.has("hcomExtGetLink");
    let mut report = Report::default();
    for entry in SURFACE {
        let name = entry.name;
        match entry.standing {
            // Variadic, so the library has no accessor to ask for.
            _ if name != "aclAppLog" && !library.has(name) => report.missing.push(name),
            Standing::Kept(what) if ours => report.kept.push((name, what)),
            Standing::Refused(why) if ours => report.refused.push((name, why)),
            _ => report.works += 1,
        }
    }
    report
}

impl Report {
    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} of {} functions that real programs use work\n",
            self.works,
            SURFACE.len()
        );
        let mut list = |title: &str, entries: &[(&str, &str)]| {
            if entries.is_empty() {
                return;
            }
            text += &format!("\n{} {title}\n", entries.len());
            let width = entries
                .iter()
                .map(|(name, _)| name.len())
                .max()
                .unwrap_or(0);
            for (name, why) in entries {
                let line = format!("  {name:width$}  {why}");
                text += &format!("{}\n", line.trim_end());
            }
        };
        list("are accepted, but something does not follow", &self.kept);
        list("are refused", &self.refused);
        let missing: Vec<_> = self.missing.iter().map(|name| (*name, "")).collect();
        list("are missing", &missing);
        text
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let pairs = |entries: &[(&str, &str)]| -> Value {
            let map = entries
                .iter()
                .map(|(name, why)| ((*name).to_owned(), json!(why)));
            Value::Object(map.collect())
        };
        json!({
            "functions": SURFACE.len(),
            "work": self.works,
            "accepted": pairs(&self.kept),
            "refused": pairs(&self.refused),
            "missing": self.missing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_counted_once() {
        let report = report(&Library::from_table(hcom_fake::table()));
        assert_eq!(report.missing, [""; 0]);
        let counts = [report.works, report.kept.len(), report.refused.len()];
        assert_eq!(counts, [172, 18, 18], "{}", report.text());
        let text = report.text();
        assert!(
            text.starts_with(&format!("{} of 208 functions", report.works)),
            "{text}"
        );
        assert!(text.contains("aclopCompileAndExecute  "), "{text}");
        assert_eq!(report.json()["work"], report.works);
    }
}
