"""Decodes exported models with Python's protobuf, from the table of fields alone.

decode.py FIELDS.tsv DIR: the descriptors of the messages are built from the table; every .air file in DIR
must decode without a field that the table lacks, hold the attributes that the engine requires of each
Hcom operator, and chain the collectives of each group by control edges in the order of the operators.
"""

import csv
import glob
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SCALARS = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "float": descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
}

REQUIRED = {
    "HcomAllReduce": {"reduction", "group", "fusion", "fusion_id"},
    "HcomAllGather": {"rank_size", "group", "fusion", "fusion_id"},
    "HcomReduceScatter": {"reduction", "group", "rank_size", "fusion", "fusion_id"},
    "HcomAllToAllV": {"group"},
    "HcomBroadcast": {"root_rank", "group", "fusion", "fusion_id"},
    "HcomSend": {"group", "sr_tag", "dest_rank"},
    "HcomReceive": {"group", "sr_tag", "src_rank", "shape", "dtype"},
}


def model_class(path):
    """The class of ModelDef, made from the table."""
    file = descriptor_pb2.FileDescriptorProto(name="ge.proto", package="ge.proto", syntax="proto3")
    messages, enums = {}, {}

    def message(name):
        if name not in messages:
            if "." in name:
                outer, inner = name.rsplit(".", 1)
                made = message(outer).nested_type.add(name=inner)
            else:
                made = file.message_type.add(name=name)
            messages[name] = made
        return messages[name]

    with open(path, newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    for row in rows:
        owner = row["message_or_enum"]
        if row["type"] == "enum value":
            if owner not in enums:
                outer, _, inner = owner.rpartition(".")
                into = message(outer).enum_type if outer else file.enum_type
                enums[owner] = into.add(name=inner)
            enums[owner].value.add(name=row["field_or_value"], number=int(row["number"]))
        else:
            message(owner)
    # Named by the table, without fields there.
    message("AttrGroups")

    def reference(name, inside):
        """The full name of a message or an enum, looked up from the inside out."""
        scope = inside.split(".")
        while True:
            candidate = ".".join(scope + [name])
            if candidate in messages or candidate in enums:
                return f".ge.proto.{candidate}", candidate in enums
            if not scope:
                raise KeyError(name)
            scope.pop()

    for row in rows:
        owner, kind = row["message_or_enum"], row["type"]
        if kind == "enum value":
            continue
        target = message(owner)
        field = target.field.add(name=row["field_or_value"], number=int(row["number"]))
        field.label = field.LABEL_OPTIONAL
        if kind.startswith("map<"):
            value = kind[len("map<string, "):-1]
            entry = target.nested_type.add(name=f"{row['field_or_value'].title().replace('_', '')}Entry")
            entry.options.map_entry = True
            key = entry.field.add(name="key", number=1, label=1)
            key.type = SCALARS["string"]
            of = entry.field.add(name="value", number=2, label=1)
            of.type, of.type_name = of.TYPE_MESSAGE, reference(value, owner)[0]
            field.label, field.type = field.LABEL_REPEATED, field.TYPE_MESSAGE
            field.type_name = f".ge.proto.{owner}.{entry.name}"
            continue
        if kind.startswith("repeated "):
            field.label, kind = field.LABEL_REPEATED, kind[len("repeated "):]
        if kind in SCALARS:
            field.type = SCALARS[kind]
        else:
            field.type_name, is_enum = reference(kind, owner)
            field.type = field.TYPE_ENUM if is_enum else field.TYPE_MESSAGE
        if row["oneof"]:
            if not target.oneof_decl:
                target.oneof_decl.add(name=row["oneof"])
            field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("ge.proto.ModelDef"))


def check(path, kind):
    """Checks one model and returns the types of its Hcom operators."""
    with open(path, "rb") as file:
        data = file.read()
    model = kind.FromString(data)
    assert model.SerializeToString(deterministic=True) and len(model.graph) == 1, path
    model.DiscardUnknownFields()
    again = model.ByteSize()
    assert again == len(data), f"{path}: {len(data)} bytes, {again} of them in known fields"
    graph = model.graph[0]
    names = [op.name for op in graph.op]
    assert len(set(names)) == len(names), f"{path}: names repeat"
    latest, seen = {}, []
    for position, op in enumerate(graph.op):
        for edge in op.input:
            producer, _, index = edge.rpartition(":")
            assert names.index(producer) < position, f"{path}: {op.name} reads {edge} too early"
            assert int(index) < len(graph.op[names.index(producer)].output_desc), edge
        if not op.type.startswith("Hcom"):
            continue
        missing = REQUIRED[op.type] - set(op.attr)
        assert not missing, f"{path}: {op.name} lacks {missing}"
        group = op.attr["group"].s
        if group in latest:
            assert f"{latest[group]}:-1" in op.input, f"{path}: {op.name} is not chained to {latest[group]}"
        latest[group] = op.name
        seen.append(op.type)
    end = graph.op[-1]
    assert end.type == "NetOutput", path
    for name in latest.values():
        assert f"{name}:-1" in end.input, f"{path}: {name} may be pruned"
    return seen


def main():
    kind = model_class(sys.argv[1])
    paths = sorted(glob.glob(f"{sys.argv[2]}/*.air"))
    assert paths, f"no .air file in {sys.argv[2]}"
    seen = [name for path in paths for name in check(path, kind)]
    print(f"{len(paths)} models decode, with {', '.join(sorted(set(seen)))}")
    missing = set(sys.argv[3:]) - set(seen)
    assert not missing, f"no operator of type {missing}"


if __name__ == "__main__":
    main()
