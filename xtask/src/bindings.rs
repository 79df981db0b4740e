//! The C ABI bindings, generated from our headers.
//!
//! bindgen reads every header under `hcom-sys/include`. What it emits is kept, except the `extern`
//! block: nothing is linked, so each function becomes a signature in `mod prototype` and a row of
//! `for_each_function!`, from which `hcom-sys` makes its lazily resolved table. The rows take two
//! facts from the headers' comments: `@library` of the header and `@since` of the function.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use bindgen::callbacks::{IntKind, ParseCallbacks};
use quote::quote;

use crate::tools;

/// The libclang wheel that the committed bindings come from.
const LIBCLANG: &str = "libclang==18.1.1";

/// Writes the bindings, or with `check` compares them with the committed file.
pub(crate) fn run(check: bool) -> Result<()> {
    // libclang is found through the environment, which only a parent can set.
    if std::env::var_os("LIBCLANG_PATH").is_none() {
        let mut again = Command::new(std::env::current_exe()?);
        again.arg("bindings").args(check.then_some("--check"));
        return tools::run(again.env("LIBCLANG_PATH", libclang()?));
    }
    let include = tools::root().join("hcom-sys/include");
    let committed = tools::root().join("hcom-sys/src/bindings.rs");
    let text = generate(&include)?;
    if !check {
        return std::fs::write(&committed, text)
            .with_context(|| format!("cannot write {}", committed.display()));
    }
    let old = std::fs::read_to_string(&committed)
        .with_context(|| format!("cannot read {}", committed.display()))?;
    if let Some(line) = first_difference(&old, &text) {
        bail!(
            "hcom-sys/src/bindings.rs does not match the headers from line {line} on; run `cargo xtask bindings`"
        );
    }
    Ok(())
}

/// Number of the first line that differs.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    let (mut a, mut b) = (a.lines(), b.lines());
    let mut line = 1;
    loop {
        match (a.next(), b.next()) {
            (None, None) => return None,
            (x, y) if x != y => return Some(line),
            _ => line += 1,
        }
    }
}

/// Folder of libclang.so, fetched from PyPI into `target/tools` on first use.
fn libclang() -> Result<PathBuf> {
    let dir = tools::target().join("tools").join(LIBCLANG);
    let unpacked = dir.join("unpacked");
    if let Some(found) = find(&unpacked, "libclang.so") {
        return Ok(found);
    }
    std::fs::create_dir_all(&dir)?;
    let mut fetch = tools::pip()?;
    fetch.args(["download", "--quiet", "--no-deps", "--only-binary=:all:"]);
    tools::run(fetch.arg("--dest").arg(&dir).arg(LIBCLANG))?;
    let wheel = std::fs::read_dir(&dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .context("pip fetched no wheel of libclang")?;
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "-e"]);
    tools::run(unpack.arg(&wheel).arg(&unpacked))?;
    find(&unpacked, "libclang.so").context("the wheel of libclang holds no libclang.so")
}

/// The folder below `dir` that holds a file with this name.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|n| n == name) {
            return Some(dir.to_owned());
        }
    }
    None
}

/// The text of `hcom-sys/src/bindings.rs`.
fn generate(include: &Path) -> Result<String> {
    let headers = headers(include)?;
    let homes = homes(include, &headers)?;
    let source: String = headers
        .iter()
        .map(|header| format!("#include \"{header}\"\n"))
        .collect();
    let raw = bindgen::Builder::default()
        .header_contents("all.h", &source)
        .clang_args(["-x", "c", "-std=c11"])
        .clang_arg(format!("-I{}", include.display()))
        .clang_arg(format!("-I{}", gcc_include()?))
        .allowlist_file(format!("{}/.*", escape_regex(include)))
        .default_enum_style(bindgen::EnumVariation::NewType {
            is_bitfield: false,
            is_global: true,
        })
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_eq(true)
        .layout_tests(false)
        .use_core()
        .rust_target(bindgen::RustTarget::stable(85, 0).map_err(|e| anyhow::anyhow!("{e}"))?)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .disable_header_comment()
        .formatter(bindgen::Formatter::None)
        .parse_callbacks(Box::new(Callbacks))
        .generate()
        .context("bindgen refuses the headers")?
        .to_string();
    let file = syn::parse_file(&raw).context("bindgen printed what is not Rust")?;
    let (mut types, mut prototypes, mut rows) = (Vec::new(), Vec::new(), String::new());
    for item in file.items {
        let syn::Item::ForeignMod(block) = item else {
            types.push(item);
            continue;
        };
        let (unsafety, abi) = (&block.unsafety, &block.abi);
        for function in block.items {
            let syn::ForeignItem::Fn(function) = function else {
                bail!("the headers declare something foreign that is no function");
            };
            let name = &function.sig.ident;
            // A C-variadic function cannot be defined in Rust, so no table could hold it.
            if function.sig.variadic.is_some() {
                continue;
            }
            let home = homes
                .get(&name.to_string())
                .with_context(|| format!("{name} stands under no @library"))?;
            let (mut docs, since) = documentation(&function.attrs)?;
            let since = since.or_else(|| home.since.clone());
            if let Some(since) = &since {
                docs.push(format!(" Since {}.", since.replace("8.0", "CANN 8.0")));
            }
            let (inputs, output) = (&function.sig.inputs, &function.sig.output);
            prototypes.push(quote! {
                #(#[doc = #docs])*
                pub type #name = #unsafety #abi fn(#inputs) #output;
            });
            rows.push_str(&format!(
                "        {name}: {}, {};\n",
                group(&home.library)?,
                vintage(since.as_deref())?
            ));
        }
    }
    let code = quote! {
        #(#types)*
        /// Signatures of the functions, to be resolved through [`Library`](crate::Library).
        pub mod prototype {
            use super::*;
            #(#prototypes)*
        }
    };
    let code = readable(&rustfmt(&code.to_string())?)?;
    Ok(format!(
        "//! Types, constants and signatures of the headers under `include/`.\n\
         //!\n\
         //! Generated by `cargo xtask bindings`; do not edit.\n\n\
         #![expect(unsafe_code, reason = \"generated: zeroed defaults of plain C structures\")]\n\
         #![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]\n\
         #![allow(unused_qualifications, clippy::all, clippy::undocumented_unsafe_blocks)]\n\n\
         {code}\n\
         /// Hands every function to a macro: name, group of libraries, first version.\n\
         macro_rules! for_each_function {{\n    \
             ($apply:ident) => {{\n        $apply! {{\n{rows}        }}\n    }};\n}}\n"
    ))
}

/// All headers, as programs include them.
fn headers(include: &Path) -> Result<Vec<String>> {
    fn walk(dir: &Path, include: &Path, found: &mut Vec<String>) -> Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                walk(&path, include, found)?;
            } else {
                found.push(path.strip_prefix(include)?.display().to_string());
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    walk(include, include, &mut found)?;
    ensure!(!found.is_empty(), "no header under {}", include.display());
    found.sort();
    Ok(found)
}

/// What a header says of all its functions: `@library`, and `@since` unless one says otherwise.
#[derive(Clone)]
struct Home {
    library: String,
    since: Option<String>,
}

/// Function name → what the header that declares it says.
fn homes(include: &Path, headers: &[String]) -> Result<BTreeMap<String, Home>> {
    let mut map = BTreeMap::new();
    for header in headers {
        let text = std::fs::read_to_string(include.join(header))?;
        let Some((head, body)) = text.split_once("*/") else {
            continue;
        };
        let Some(library) = tag(head, "@library ") else {
            continue;
        };
        let home = Home {
            library,
            since: tag(head, "@since "),
        };
        for (at, _) in body.match_indices('(') {
            let name = body[..at]
                .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default();
            if !name.is_empty() {
                map.insert(name.to_owned(), home.clone());
            }
        }
    }
    Ok(map)
}

/// The word after a tag.
fn tag(text: &str, tag: &str) -> Option<String> {
    let (_, rest) = text.split_once(tag)?;
    Some(rest.split_whitespace().next()?.to_owned())
}

/// The documentation of a function without its `@since`, and that version.
fn documentation(attributes: &[syn::Attribute]) -> Result<(Vec<String>, Option<String>)> {
    let mut lines = Vec::new();
    let mut since = None;
    for attribute in attributes {
        let syn::Meta::NameValue(pair) = &attribute.meta else {
            continue;
        };
        let syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) = &pair.value
        else {
            continue;
        };
        for line in text.value().lines() {
            match line.split_once("@since ") {
                Some((before, version)) => {
                    since = Some(version.trim().to_owned());
                    lines.push(format!(" {}", before.trim()));
                }
                None => lines.push(format!(" {}", line.trim())),
            }
        }
    }
    lines.retain(|line| !line.trim().is_empty());
    ensure!(!lines.is_empty(), "a function without a comment");
    Ok((lines, since))
}

/// Variant of `hcom_sys::Group`.
fn group(library: &str) -> Result<&'static str> {
    Ok(match library {
        "libacl_rt.so" => "Runtime",
        "libacl_mdl.so" => "Model",
        "libacl_op_executor.so" => "OpExecutor",
        "libacl_op_compiler.so" => "OpCompiler",
        "libmsprofiler.so" => "Profiler",
        "libprofapi.so" => "ProfilerReports",
        "libruntime.so" => "Driver",
        "libhccl.so" => "Hccl",
        "libnnopbase.so" => "OpBase",
        "libopapi.so" => "Operators",
        "libhcom_fake_so.so" => "Extension",
        other => bail!("no group of libraries for {other}"),
    })
}

/// Variant of `hcom_sys::Since`.
fn vintage(since: Option<&str>) -> Result<&'static str> {
    Ok(match since {
        None => "Unrecorded",
        Some("8.0") => "Cann8",
        Some("torch_npu 2.9") => "TorchNpu29",
        Some("hcomm 2026-04") => "Hcomm202604",
        Some("9.x") => "Cann9",
        Some(other) => bail!("no version named {other}"),
    })
}

/// gcc's own headers (stddef.h, stdbool.h), which a bare libclang lacks.
fn gcc_include() -> Result<String> {
    let mut ask = Command::new("gcc");
    Ok(tools::capture(ask.arg("-print-file-name=include"))?
        .trim()
        .to_owned())
}

fn escape_regex(path: &Path) -> String {
    path.display()
        .to_string()
        .chars()
        .flat_map(|c| {
            (!c.is_alphanumeric() && c != '/')
                .then_some('\\')
                .into_iter()
                .chain([c])
        })
        .collect()
}

/// Formats with the toolchain's rustfmt.
fn rustfmt(code: &str) -> Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start rustfmt")?;
    let mut stdin = child.stdin.take().context("rustfmt has no input")?;
    let code = code.to_owned();
    let feed = std::thread::spawn(move || stdin.write_all(code.as_bytes()));
    let output = child.wait_with_output()?;
    feed.join().expect("writing to a pipe does not panic")?;
    ensure!(
        output.status.success(),
        "rustfmt failed ({})",
        output.status
    );
    String::from_utf8(output.stdout).context("rustfmt printed no UTF-8")
}

/// Doc attributes as doc comments.
fn readable(code: &str) -> Result<String> {
    let mut text = String::new();
    for line in code.lines() {
        let bare = line.trim_start();
        let literal = bare
            .strip_prefix("#[doc = ")
            .and_then(|rest| rest.strip_suffix(']'));
        let Some(literal) = literal else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let comment: syn::LitStr = syn::parse_str(literal)
            .with_context(|| format!("a doc attribute over several lines: {bare}"))?;
        let indent = &line[..line.len() - bare.len()];
        for part in comment.value().lines() {
            text.push_str(format!("{indent}///{part}").trim_end());
            text.push('\n');
        }
    }
    Ok(text)
}

/// What bindgen cannot know: the types of macros, and that comments become rustdoc.
#[derive(Debug)]
struct Callbacks;

impl ParseCallbacks for Callbacks {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        let any = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
        let named = |name, is_signed| IntKind::Custom { name, is_signed };
        Some(match name {
            _ if any(&["ACL_ERROR_", "ACL_SUCCESS", "ACL_RT_SUCCESS"]) => named("aclError", true),
            _ if any(&["ACLNN_"]) => named("aclnnStatus", true),
            _ if any(&["ACL_MAJOR_", "ACL_MINOR_", "ACL_PATCH_"]) => IntKind::I32,
            "HCCL_ROOT_INFO_BYTES" | "ACL_IPC_EVENT_HANDLE_SIZE" => named("usize", false),
            _ if name.ends_with("_MAX_LENGTH") || name.ends_with("_MAX_SIZE") => {
                named("usize", false)
            }
            "ACL_CONTINUE_ON_FAILURE" | "ACL_STOP_ON_FAILURE" | "ACL_UNKNOWN_RANK" => IntKind::U64,
            _ if any(&["ACL_PROF_", "ACL_NOTIFY_", "ACL_RT_NOTIFY_"]) => IntKind::U64,
            _ if any(&["ACL_RT_VMM_", "ACL_RT_IPC_"]) => IntKind::U64,
            _ => IntKind::U32,
        })
    }

    fn process_comment(&self, comment: &str) -> Option<String> {
        let mut text = String::new();
        for c in comment.chars() {
            if matches!(c, '[' | ']' | '<' | '>' | '*') {
                text.push('\\');
            }
            text.push(c);
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_a_line_number() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\n", "a\nb\n"), Some(2));
    }

    #[test]
    fn since_is_taken_out_of_the_documentation() {
        let function: syn::ForeignItemFn =
            syn::parse_str("#[doc = \" Waits.\\n @since torch_npu 2.9\"] fn wait();").unwrap();
        let (docs, since) = documentation(&function.attrs).unwrap();
        assert_eq!(docs, [" Waits."]);
        assert_eq!(since.as_deref(), Some("torch_npu 2.9"));
        assert_eq!(vintage(since.as_deref()).unwrap(), "TorchNpu29");
    }

    #[test]
    fn an_unknown_library_or_version_is_refused() {
        assert!(group("libother.so").is_err());
        assert!(vintage(Some("7.0")).is_err());
    }
}
