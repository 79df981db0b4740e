//! A model as text for people.

use std::fmt::{self, Write as _};

use super::proto::{AttrDef, DataType, ModelDef, OpDef, TensorDescriptor, Value};

/// One block per operator, in the form of protobuf text: edges with a caret are control edges,
/// descriptors stand under `[i]NAME` and `[o]NAME`.
pub(super) fn print(model: &ModelDef) -> String {
    let mut text = String::new();
    for op in model.graph.iter().flat_map(|graph| &graph.op) {
        // Writing to a string does not fail.
        let _ = block(&mut text, op);
    }
    text
}

fn block(text: &mut String, op: &OpDef) -> fmt::Result {
    writeln!(
        text,
        "node {{\n  name: {:?}\n  op: {:?}",
        op.name, op.r#type
    )?;
    for edge in &op.input {
        match edge.strip_suffix(":-1") {
            Some(producer) => writeln!(text, "  input: \"^{producer}\"")?,
            None => writeln!(text, "  input: {edge:?}")?,
        }
    }
    for (name, value) in &op.attr {
        attribute(text, name, &show(value))?;
    }
    for (side, descriptors) in [("i", &op.input_desc), ("o", &op.output_desc)] {
        for descriptor in descriptors {
            let name = format!("[{side}]{}", descriptor.name);
            attribute(text, &name, &describe(descriptor))?;
        }
    }
    text.write_str("}\n")
}

fn attribute(text: &mut String, name: &str, value: &str) -> fmt::Result {
    writeln!(
        text,
        "  attr {{\n    key: {name:?}\n    value {{\n      s: {value:?}\n    }}\n  }}"
    )
}

fn describe(descriptor: &TensorDescriptor) -> String {
    let dtype = DataType::try_from(descriptor.dtype).map_or("?".to_owned(), |ty| format!("{ty:?}"));
    let dims = descriptor
        .shape
        .as_ref()
        .map_or(&[][..], |shape| &shape.dim);
    let mut text = format!("{dtype}{dims:?} {}", descriptor.layout);
    for (name, value) in &descriptor.attr {
        let _ = write!(text, ", {name} = {}", show(value));
    }
    text
}

fn show(attr: &AttrDef) -> String {
    let plain = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &attr.value {
        None => String::new(),
        Some(Value::S(text)) => plain(text),
        Some(Value::I(value)) => value.to_string(),
        Some(Value::F(value)) => format!("{value:?}"),
        Some(Value::B(value)) => value.to_string(),
        Some(Value::List(list)) if list.s.is_empty() => format!("{:?}", list.i),
        Some(Value::List(list)) => {
            let all: Vec<String> = list.s.iter().map(|text| plain(text)).collect();
            format!("{all:?}")
        }
        Some(Value::T(tensor)) => {
            let of = tensor.desc.as_ref().map(describe).unwrap_or_default();
            format!("{of}, {} bytes", tensor.data.len())
        }
    }
}
