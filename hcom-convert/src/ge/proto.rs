//! The messages of an exported model, as far as they are written or read here.
//!
//! Package `ge.proto`, proto3; names and numbers are those of the Graph Engine's public `ge_ir.proto`.
//! Maps are sorted, so that equal models have equal bytes.

use std::collections::BTreeMap;

/// Everything in a `.air` file.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ModelDef {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(uint32, tag = "2")]
    pub(super) version: u32,
    #[prost(message, repeated, tag = "7")]
    pub(super) graph: Vec<GraphDef>,
}

/// A graph: operations in topological order.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GraphDef {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) input: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(super) output: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub(super) op: Vec<OpDef>,
    #[prost(btree_map = "string, message", tag = "11")]
    pub(super) attr: BTreeMap<String, AttrDef>,
}

/// One operation.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OpDef {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) r#type: String,
    /// `producer:output`; a control edge is `producer:-1`.
    #[prost(string, repeated, tag = "5")]
    pub(super) input: Vec<String>,
    #[prost(btree_map = "string, message", tag = "10")]
    pub(super) attr: BTreeMap<String, AttrDef>,
    #[prost(int64, tag = "21")]
    pub(super) id: i64,
    #[prost(message, repeated, tag = "33")]
    pub(super) input_desc: Vec<TensorDescriptor>,
    #[prost(message, repeated, tag = "34")]
    pub(super) output_desc: Vec<TensorDescriptor>,
}

/// Name and type of an operand or result.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorDescriptor {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(enumeration = "DataType", tag = "2")]
    pub(super) dtype: i32,
    #[prost(message, optional, tag = "3")]
    pub(super) shape: Option<ShapeDef>,
    #[prost(string, tag = "4")]
    pub(super) layout: String,
    #[prost(btree_map = "string, message", tag = "5")]
    pub(super) attr: BTreeMap<String, AttrDef>,
    #[prost(string, tag = "14")]
    pub(super) device_type: String,
}

/// Sizes; -1 is unknown.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ShapeDef {
    #[prost(int64, repeated, tag = "1")]
    pub(super) dim: Vec<i64>,
}

/// Data with its type.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorDef {
    #[prost(message, optional, tag = "1")]
    pub(super) desc: Option<TensorDescriptor>,
    /// Dense, row-major, little endian.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) data: Vec<u8>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AttrDef {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 12")]
    pub(super) value: Option<Value>,
}

/// What an attribute holds.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Value {
    #[prost(message, tag = "1")]
    List(ListValue),
    #[prost(bytes = "vec", tag = "2")]
    S(Vec<u8>),
    #[prost(int64, tag = "3")]
    I(i64),
    #[prost(float, tag = "4")]
    F(f32),
    #[prost(bool, tag = "5")]
    B(bool),
    #[prost(message, tag = "12")]
    T(TensorDef),
}

/// A list of values of one kind.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListValue {
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(super) s: Vec<Vec<u8>>,
    #[prost(int64, repeated, tag = "3")]
    pub(super) i: Vec<i64>,
    #[prost(enumeration = "ListValueType", tag = "20")]
    pub(super) val_type: i32,
}

/// The kind of the values of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum ListValueType {
    None = 0,
    String = 1,
    Int = 2,
}

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum DataType {
    Undefined = 0,
    Float = 1,
    Float16 = 2,
    Int8 = 3,
    Uint8 = 4,
    Int16 = 5,
    Uint16 = 6,
    Int32 = 7,
    Int64 = 8,
    Uint32 = 9,
    Uint64 = 10,
    Bool = 11,
    Double = 12,
    Complex64 = 16,
    Complex128 = 17,
    Bf16 = 27,
}
