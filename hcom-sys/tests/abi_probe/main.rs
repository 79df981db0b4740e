//! The ABI three ways: facts written down here, the Rust bindings, and a C program compiled from the
//! headers. All must agree.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hcom_sys::FUNCTIONS;

/// A number with its value by fact and by the bindings.
pub(crate) struct Number {
    name: &'static str,
    fact: i128,
    bound: i128,
}

/// A structure: the expression of each measure in C, its value by fact and by the bindings.
pub(crate) struct Layout {
    measures: &'static [(&'static str, usize, usize)],
}

macro_rules! enumerators {
    ($($name:ident = $fact:expr,)*) => {
        [$($crate::Number {
            name: stringify!($name),
            fact: $fact,
            bound: hcom_sys::bindings::$name.0 as i128,
        },)*]
    };
}

macro_rules! macros {
    ($($name:ident = $fact:expr,)*) => {
        [$($crate::Number {
            name: stringify!($name),
            fact: $fact,
            bound: hcom_sys::bindings::$name as i128,
        },)*]
    };
}

macro_rules! layouts {
    ($($name:ident { $($field:ident: $offset:expr),* $(,)? } = $size:expr, align $align:expr,)*) => {
        [$($crate::Layout {
            measures: &[
                (
                    concat!("sizeof(", stringify!($name), ")"),
                    $size,
                    size_of::<hcom_sys::bindings::$name>(),
                ),
                (
                    concat!("_Alignof(", stringify!($name), ")"),
                    $align,
                    align_of::<hcom_sys::bindings::$name>(),
                ),
                $((
                    concat!("offsetof(", stringify!($name), ", ", stringify!($field), ")"),
                    $offset,
                    std::mem::offset_of!(hcom_sys::bindings::$name, $field),
                ),)*
            ],
        },)*]
    };
}

mod enumerators;
mod layouts;
mod macros;

/// Every header as a program includes it.
fn headers() -> Vec<String> {
    fn walk(dir: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).expect("the headers are there") {
            let path = entry.expect("the folder is readable").path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                let inside = path.strip_prefix(common::include()).expect("below include");
                found.push(inside.display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    walk(&common::include(), &mut found);
    found.sort();
    assert!(found.len() > 50, "{found:?}");
    found
}

/// What a C program from the headers says of each expression.
fn ask_c(expressions: impl Iterator<Item = String>) -> BTreeMap<String, i128> {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let mut source = "#include <stdio.h>\n".to_owned();
    for header in headers() {
        writeln!(source, "#include \"{header}\"").expect("a string takes text");
    }
    source.push_str("int main(void)\n{\n");
    for expression in expressions {
        // The sign decides how to widen: unsigned 64-bit values do not fit long long.
        writeln!(
            source,
            "    if ((__int128)({expression}) < 0) printf(\"{expression}\\t%lld\\n\", (long long)({expression}));\n    \
             else printf(\"{expression}\\t%llu\\n\", (unsigned long long)({expression}));"
        )
        .expect("a string takes text");
    }
    source.push_str("    return 0;\n}\n");
    let program = common::compile(dir.path(), "probe", &source, &[]);
    common::run(&mut std::process::Command::new(program))
        .lines()
        .map(|line| {
            let (expression, value) = line.split_once('\t').expect("a tab in each line");
            (expression.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

#[test]
fn enumerators_and_macros_have_the_numbers_of_the_abi() {
    let all = || enumerators::ENUMERATORS.iter().chain(macros::MACROS);
    let c = ask_c(all().map(|number| number.name.to_owned()));
    assert_eq!(c.len(), all().count());
    for number in all() {
        let values = (number.bound, c[number.name]);
        assert_eq!(values, (number.fact, number.fact), "{}", number.name);
    }
}

#[test]
fn structures_have_the_layout_of_the_abi() {
    let all = || layouts::LAYOUTS.iter().flat_map(|layout| layout.measures);
    let in_c = |expression: &str| expression.replace(", type_)", ", type)");
    let c = ask_c(all().map(|(expression, ..)| in_c(expression)));
    assert_eq!(c.len(), all().count());
    for (expression, fact, bound) in all() {
        let values = (*bound, c[&in_c(expression)]);
        assert_eq!(values, (*fact, *fact as i128), "{expression}");
    }
}

#[test]
fn enumerations_are_four_bytes_and_handles_are_pointers() {
    use hcom_sys::bindings::*;
    assert_eq!(size_of::<aclDataType>(), 4);
    assert_eq!(size_of::<HcclResult>(), 4);
    assert_eq!(size_of::<aclError>(), 4);
    assert_eq!(size_of::<HcclComm>(), size_of::<*const ()>());
    assert_eq!(size_of::<aclrtStream>(), size_of::<*const ()>());
}

#[test]
fn every_function_is_listed_once() {
    let mut names: Vec<_> = FUNCTIONS.iter().map(|function| function.name).collect();
    let listed = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), listed);
    assert!(listed > 400, "{listed}");
}

#[test]
fn a_prepared_configuration_equals_that_of_the_inline_c_function() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let source = "#include <stdio.h>\n#include \"hccl/hccl.h\"\nint main(void)\n{\n    \
        HcclCommConfig config;\n    HcclCommConfigInit(&config);\n    \
        const unsigned char *byte = (const unsigned char *)&config;\n    \
        for (size_t i = 0; i < sizeof config; i++) printf(\"%02x\", byte[i]);\n    return 0;\n}\n";
    let program = common::compile(dir.path(), "config", source, &[]);
    let c = common::run(&mut std::process::Command::new(program));
    let rust = hcom_sys::comm_config();
    let mut head = size_of_val(&rust).to_ne_bytes().to_vec();
    head.extend(0xF0F0_F0F0_u32.to_ne_bytes());
    head.extend(11_u32.to_ne_bytes());
    head.extend([0; 8]);
    let bytes: Vec<u8> = rust.reserved.iter().map(|byte| *byte as u8).collect();
    assert_eq!(bytes, head);
    // The fields after the head, as the ABI orders them.
    let mut image = vec![0_u8; size_of_val(&rust)];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &head);
    put(24, &rust.hcclBufferSize.to_ne_bytes());
    put(28, &rust.hcclDeterministic.to_ne_bytes());
    put(288, &rust.hcclOpExpansionMode.to_ne_bytes());
    put(292, &rust.hcclRdmaTrafficClass.to_ne_bytes());
    put(296, &rust.hcclRdmaServiceLevel.to_ne_bytes());
    put(316, &rust.hcclExecTimeOut.to_ne_bytes());
    put(2228, &rust.hcclQos.to_ne_bytes());
    put(2232, &rust.hcclSymWinMaxMemSizePerRank.to_ne_bytes());
    put(2240, &rust.hcclChannelSqDepth.to_ne_bytes());
    let image: String = image.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(c, image);
}

#[test]
fn each_header_compiles_on_its_own() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let source = dir.path().join("one.c");
    for header in headers() {
        std::fs::write(&source, format!("#include \"{header}\"\n")).expect("writable");
        common::run(common::compiler().arg("-fsyntax-only").arg(&source));
    }
}

#[test]
fn the_headers_compile_as_cpp_where_gcc_has_a_cpp_compiler() {
    let found = common::run(common::compiler().arg("-print-prog-name=cc1plus"));
    if !std::path::Path::new(found.trim()).is_absolute() {
        println!("gcc has no C++ compiler here");
        return;
    }
    let dir = tempfile::tempdir().expect("a scratch folder");
    let source = dir.path().join("all.cpp");
    let includes: String = headers()
        .iter()
        .map(|header| format!("#include \"{header}\"\n"))
        .collect();
    std::fs::write(&source, includes).expect("writable");
    let mut command = std::process::Command::new("gcc");
    command.args([
        "-std=c++11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
        "-I",
    ]);
    common::run(command.arg(common::include()).arg(&source));
}
