use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use hcom_ir::{Graph, Literal, parse};

use super::proto::{AttrDef, OpDef, Value};
use super::{Air, Model, Options, Weight, group_name, lower, numa, relations};

fn graph(text: &str) -> Graph {
    let text = format!("hcom 1\n{text}");
    parse(&text, "t.hcom").unwrap_or_else(|found| panic!("{}", found.render(Some(&text))))
}

/// The program of `rank` of three: the groups `@g` of all and `@p` of ranks 2 and 0.
fn of(inputs: &str, body: &str) -> Graph {
    graph(&format!(
        "group @g = ranks(0, 1, 2)\ngroup @p = ranks(2, 0)\ngraph @t({inputs}) {{\n  {body}\n  return %y\n}}"
    ))
}

fn options(rank: u32) -> Options {
    Options {
        rank,
        world_size: 3,
        ..Options::default()
    }
}

fn ops(model: &Model) -> &[OpDef] {
    &model.0.graph[0].op
}

fn show(value: &AttrDef) -> String {
    match &value.value {
        Some(Value::I(value)) => value.to_string(),
        Some(Value::F(value)) => value.to_string(),
        Some(Value::B(value)) => value.to_string(),
        Some(Value::S(value)) => String::from_utf8_lossy(value).into_owned(),
        Some(Value::List(list)) => format!("{:?}", list.i),
        other => format!("{other:?}"),
    }
}

/// Lowers the program on rank 0, reads it back, and compares the operators that are no constants:
/// type, edges, attributes.
#[track_caller]
fn check(inputs: &str, body: &str, expected: Expect) {
    let graph = of(inputs, body);
    let model = lower(&graph, &options(0)).unwrap_or_else(|error| panic!("{error}"));
    let again = Air::read(&model.to_air()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.graph, graph);
    let mut text = String::new();
    for op in ops(&model)
        .iter()
        .filter(|op| !matches!(&*op.r#type, "Const" | "Data"))
    {
        let attrs = op
            .attr
            .iter()
            .map(|(name, value)| format!(" {name}={}", show(value)));
        let attrs: String = attrs.collect();
        text += &format!(
            "{} {}({}){attrs}\n",
            op.name,
            op.r#type,
            op.input.join(", ")
        );
    }
    expected.assert_eq(&text);
}

/// The message for a program that has no form.
#[track_caller]
fn refuse(inputs: &str, body: &str, expected: Expect) {
    let error = lower(&of(inputs, body), &options(0)).expect_err("it has no form");
    expected.assert_eq(&error.to_string());
}

#[test]
fn the_communication_of_a_group_is_a_chain_that_the_end_keeps() {
    check(
        "%x: f32[3, 2]",
        "%a = all_reduce %x, op = sum, group = @g
  %b = broadcast %x, root = 1, group = @p
  barrier group = @g
  send %x, peer = 0, tag = 5, group = @p
  %y = reduce_scatter %a, op = max, group = @g",
        expect![[r#"
            HcomAllReduce HcomAllReduce(x:0) fusion=0 fusion_id=-1 group=hccl_world_group reduction=sum
            HcomBroadcast HcomBroadcast(x:0) fusion=0 fusion_id=-1 group=ranks_2_0 root_rank=1
            HcomAllReduce_1 HcomAllReduce(arrived:0, HcomAllReduce:-1) fusion=0 fusion_id=-1 group=hccl_world_group reduction=sum
            HcomSend HcomSend(x:0, HcomBroadcast:-1) dest_rank=0 group=ranks_2_0 sr_tag=5
            HcomReduceScatter HcomReduceScatter(HcomAllReduce:0, HcomAllReduce_1:-1) fusion=0 fusion_id=-1 group=hccl_world_group rank_size=3 reduction=max
            NetOutput NetOutput(HcomReduceScatter:0, HcomReduceScatter:-1, HcomSend:-1)
        "#]],
    );
}

#[test]
fn gathers_and_exchanges() {
    check(
        "%x: f32[3, 2], %z: f32[1, 2]",
        "%a = all_gather %x, group = @g
  %b = all_gather %x, dim = 1, group = @p
  %c = all_gather_uneven %x, counts = [3, 0, 2], group = @g
  %d = all_to_all %x, group = @g
  %e = all_to_all %x, send_counts = [1, 2, 0], recv_counts = [1, 0, 1], group = @g
  %f = gather_to %x, root = 1, group = @g
  %h = scatter %x, root = 2, group = @g
  %y = recv f32[2, 2], peer = 0, tag = 3, group = @p",
        expect![[r#"
            HcomAllGather HcomAllGather(x:0) fusion=0 fusion_id=-1 group=hccl_world_group rank_size=3
            HcomAllGather_1 HcomAllGather(x:0) fusion=0 fusion_id=-1 group=ranks_2_0 rank_size=2
            b_pieces SplitV(HcomAllGather_1:0, size_splits:0, split_dim:0) num_split=2
            b ConcatD(b_pieces:0, b_pieces:1) N=2 concat_dim=1
            HcomAllGatherV HcomAllGatherV(x:0, send_count:0, recv_counts:0, recv_displacements:0, HcomAllGather:-1) group=hccl_world_group
            HcomAllToAllV HcomAllToAllV(x:0, send_counts:0, send_displacements:0, recv_counts_1:0, recv_displacements_1:0, HcomAllGatherV:-1) group=hccl_world_group
            d Reshape(HcomAllToAllV:0, shape:0) axis=0 num_axes=-1
            HcomAllToAllV_1 HcomAllToAllV(x:0, send_counts_1:0, send_displacements_1:0, recv_counts_2:0, recv_displacements_2:0, HcomAllToAllV:-1) group=hccl_world_group
            e Reshape(HcomAllToAllV_1:0, shape_1:0) axis=0 num_axes=-1
            HcomAllGather_2 HcomAllGather(x:0, HcomAllToAllV_1:-1) fusion=0 fusion_id=-1 group=hccl_world_group rank_size=3
            f ZerosLike(HcomAllGather_2:0)
            HcomBroadcast HcomBroadcast(x:0, HcomAllGather_2:-1) fusion=0 fusion_id=-1 group=hccl_world_group root_rank=2
            h StridedSlice(HcomBroadcast:0, begin:0, end:0, strides:0) begin_mask=2 ellipsis_mask=0 end_mask=2 new_axis_mask=0 shrink_axis_mask=0
            HcomReceive HcomReceive(HcomAllGather_1:-1) dtype=1 group=ranks_2_0 shape=[2, 2] sr_tag=3 src_rank=0
            NetOutput NetOutput(HcomReceive:0, HcomBroadcast:-1, HcomReceive:-1)
        "#]],
    );
}

#[test]
fn dimensions_count_from_either_end() {
    for call in ["all_gather %x", "reduce_scatter %x, op = sum"] {
        let model = |dim: i64| {
            let graph = of(
                "%x: f32[3, 6]",
                &format!("%y = {call}, dim = {dim}, group = @g"),
            );
            lower(&graph, &options(0)).unwrap()
        };
        assert_eq!(ops(&model(-1)), ops(&model(1)));
        assert_ne!(ops(&model(-1)), ops(&model(0)));
    }
}

#[test]
fn reductions_through_wider_types_and_other_dimensions() {
    check(
        "%x: bf16[3, 6], %m: bool[4], %i: f16[3]",
        "%a = all_reduce %x, op = avg, group = @g
  %b = all_reduce %m, op = sum, group = @g
  %c = reduce_scatter %x, op = sum, dim = 1, group = @g
  %d = reduce_scatter_uneven %x, op = min, counts = [1, 2, 0], rows = 1, group = @g
  %e = reduce %i, op = premul_sum, factor = 0.5, root = 0, group = @p
  %y = reduce %i, op = sum, root = 1, group = @p",
        expect![[r#"
            a_cast Cast(x:0) dst_type=1
            HcomAllReduce HcomAllReduce(a_cast:0) fusion=0 fusion_id=-1 group=hccl_world_group reduction=sum
            a RealDiv(HcomAllReduce:0, ranks:0)
            a_cast_1 Cast(a:0) dst_type=27
            b_cast Cast(m:0) dst_type=3
            HcomAllReduce_1 HcomAllReduce(b_cast:0, HcomAllReduce:-1) fusion=0 fusion_id=-1 group=hccl_world_group reduction=max
            b_cast_1 Cast(HcomAllReduce_1:0) dst_type=11
            c_cast Cast(x:0) dst_type=1
            c_pieces SplitV(c_cast:0, size_splits:0, split_dim:0) num_split=3
            c_rows ConcatD(c_pieces:0, c_pieces:1, c_pieces:2) N=3 concat_dim=0
            HcomReduceScatter HcomReduceScatter(c_rows:0, HcomAllReduce_1:-1) fusion=0 fusion_id=-1 group=hccl_world_group rank_size=3 reduction=sum
            c_cast_1 Cast(HcomReduceScatter:0) dst_type=27
            d_cast Cast(x:0) dst_type=1
            HcomReduceScatterV HcomReduceScatterV(d_cast:0, recv_count:0, send_counts:0, send_displacements:0, HcomReduceScatter:-1) group=hccl_world_group reduction=min
            d_cast_1 Cast(HcomReduceScatterV:0) dst_type=27
            e_cast Cast(i:0) dst_type=1
            e_scaled Mul(e_cast:0, factor:0)
            HcomReduce HcomReduce(e_scaled:0) fusion=0 fusion_id=-1 group=ranks_2_0 reduction=sum root_rank=0
            HcomReduce_1 HcomReduce(i:0, HcomReduce:-1) fusion=0 fusion_id=-1 group=ranks_2_0 reduction=sum root_rank=1
            NetOutput NetOutput(HcomReduce_1:0, HcomReduceScatterV:-1, HcomReduce_1:-1)
        "#]],
    );
}

#[test]
fn operations_of_a_transformer() {
    check(
        "%x: f32[2, 4], %w: f32[4, 4], %v: f32[4], %t: f32[9, 4], %i: i64[2], %q: f32[2, 3, 4], %k: f32[2, 5, 4], %n: f32[3, 5], %o: mut f32[2, 4]",
        "%a = matmul %x, %w, transpose_b = true
  %b = matmul %q, %w
  %c = bias_add %a, %v
  %d = layer_norm %c, %v, %v
  %e = rms_norm %d, %v
  %f = gelu %e, approximate = tanh
  %h = embedding %t, %i
  %j = attention %q, %k, %k, %n, scale = 0.5
  %l = transpose %f, perm = [1, 0]
  %m, %m2 = split %l, dim = 0, sizes = [1, 3]
  %p = concat %m, %m2, dim = 0
  %r = slice %p, dim = 1, start = 1, end = 2
  %s = sum %r, dims = [0], keepdim = true
  %u = argmax %p, dim = 1, keepdim = true
  %z = less %x, %d
  %aa = where %z, %x, %d
  %ab = cast %aa, to = f16
  %ac = softmax %ab
  %ad = expand %ac, shape = [3, 2, 4]
  %ae = reshape %ad, shape = [6, 4]
  %af = fill shape = [2], value = 1, dtype = i32
  %ag = arange start = 0, end = 4, step = 1, dtype = i64
  %ah = tril %x, diagonal = 1
  %y = silu %ah
  copy_to_input %y, %o",
        expect![[r#"
            a MatMulV2(x:0, w:0) offset_x=0 transpose_x1=false transpose_x2=true
            b BatchMatMulV2(q:0, w:0) adj_x1=false adj_x2=false offset_x=0
            c Add(a:0, v:0)
            d LayerNormV3(c:0, v:0, v:0) begin_norm_axis=1 begin_params_axis=-1 epsilon=0.00001
            e RmsNorm(d:0, v:0) epsilon=0.000001
            f GeluV2(e:0) approximate=tanh
            h GatherV2(t:0, i:0, axis:0) batch_dims=0 is_preprocessed=false negative_index_support=false
            j_scores BatchMatMulV2(q:0, k:0) adj_x1=false adj_x2=true offset_x=0
            j_scaled Mul(j_scores:0, scale:0)
            j_masked Add(j_scaled:0, n:0)
            j_weights SoftmaxV2(j_masked:0) axes=[-1] half_to_float=false
            j BatchMatMulV2(j_weights:0, k:0) adj_x1=false adj_x2=false offset_x=0
            l Transpose(f:0, perm:0)
            m SplitV(l:0, size_splits:0, split_dim:0) num_split=2
            p ConcatD(m:0, m:1) N=2 concat_dim=0
            r StridedSlice(p:0, begin:0, end:0, strides:0) begin_mask=1 ellipsis_mask=0 end_mask=3 new_axis_mask=0 shrink_axis_mask=0
            s ReduceSum(r:0, axes:0) keep_dims=true
            u ArgMaxV2(p:0, dimension:0) dtype=8
            u_1 Unsqueeze(u:0) axes=[1]
            z Less(x:0, d:0)
            aa SelectV2(z:0, x:0, d:0)
            ab Cast(aa:0) dst_type=2
            ac SoftmaxV2(ab:0) axes=[-1] half_to_float=false
            ad BroadcastTo(ac:0, shape:0)
            ae Reshape(ad:0, shape_1:0) axis=0 num_axes=-1
            af Fill(shape_2:0, value:0)
            ag Range(start:0, limit:0, delta:0)
            ah Tril(x:0) diagonal=1
            y Swish(ah:0) scale=1
            assign_o Assign(o:0, y:0) use_locking=false validate_shape=true
            NetOutput NetOutput(y:0, assign_o:-1)
        "#]],
    );
}

#[test]
fn what_has_no_form_is_named() {
    refuse(
        "%x: i32[4]",
        "%y = all_reduce %x, op = band, group = @g",
        expect![
            "`%y = all_reduce %x, op = band, group = @g` (t.hcom:5:3) has no form in the Graph Engine's vocabulary: the engine reduces by sum, prod, min and max"
        ],
    );
    refuse(
        "%x: f64[4]",
        "%y = all_reduce %x, op = sum, group = @g",
        expect![
            "`%y = all_reduce %x, op = sum, group = @g` (t.hcom:5:3) has no form in the Graph Engine's vocabulary: the engine reduces f32, f16, i8, i16, i32, i64, not f64"
        ],
    );
    refuse(
        "%x: c64[4]",
        "%y = all_gather %x, group = @g",
        expect![
            "`%y = all_gather %x, group = @g` (t.hcom:5:3) has no form in the Graph Engine's vocabulary: the engine moves f32, f16, f64, bf16, i8, i16, i32, i64, u8, u16, u32, u64, not c64"
        ],
    );
    refuse(
        "%x: f32[4]",
        "%y = custom \"mine\"(%x) -> f32[4]",
        expect![[
            r#"`%y = custom "mine"(%x) -> f32[4]` (t.hcom:5:3) has no form in the Graph Engine's vocabulary: it is opaque; only its own library knows it"#
        ]],
    );
    refuse(
        "%x: i32[4]",
        "%y = div %x, %x",
        expect![
            "`%y = div %x, %x` (t.hcom:5:3) has no form in the Graph Engine's vocabulary: the engine divides floats; cast to f32 and back"
        ],
    );
    refuse(
        "%x: f32[4]",
        "%y = pad %x, low = [1], high = [0], value = 0",
        expect![
            "`%y = pad %x, low = [1], high = [0], value = 0` (t.hcom:5:3) has no form in the Graph Engine's vocabulary: no operator does what pad does"
        ],
    );
}

#[test]
fn symbols_and_guards_are_read_back() {
    let graph = graph(
        "group @g = ranks(0, 1, 2)
graph @t[s, t](%x: f32[3*s, 2], %w: f32[2, t]) -> (f32[s, 2], f32[3*s, t]) {
  %a = reduce_scatter %x, op = sum, group = @g
  %b = matmul %x, %w
  %c = all_reduce %b, op = sum, group = @g
  %d = all_to_all %x, group = @g
  return %a, %c
}",
    );
    let model = lower(&graph, &options(1)).unwrap();
    assert_eq!(Air::read(&model.to_air()).unwrap().graph, graph);
    let data = &ops(&model)[0];
    assert_eq!(data.output_desc[0].shape.as_ref().unwrap().dim, [-1, 2]);
    let text = model.to_pbtxt();
    assert!(
        text.contains("_hcom_dims = [\\\"3*s\\\", \\\"2\\\"]"),
        "{text}"
    );
}

#[test]
fn weights_are_constants_or_files() {
    let graph = of(
        "%x: f32[2], %w: f32[2], %v: f32[2]",
        "%a = mul %x, %w\n  %y = add %a, %v",
    );
    let w = Literal::from_slice(&[2], &[0.5f32, -3.0]).unwrap();
    let weights = BTreeMap::from([
        (1, Weight::Inside(w.clone())),
        (2, Weight::Beside("rank_0/v".to_owned())),
    ]);
    let model = lower(
        &graph,
        &Options {
            weights,
            ..options(0)
        },
    )
    .unwrap();
    let kinds: Vec<&str> = ops(&model).iter().map(|op| &*op.r#type).collect();
    assert_eq!(
        kinds,
        ["Data", "Const", "FileConstant", "Mul", "Add", "NetOutput"]
    );
    let again = Air::read(&model.to_air()).unwrap();
    assert_eq!(again.graph, graph);
    assert_eq!(again.weights, [(1, w)]);
}

#[test]
fn a_changed_operator_is_noticed() {
    let mut model = lower(&of("%x: f32[2]", "%y = exp %x"), &options(0)).unwrap();
    let op = &mut model.0.graph[0].op[1];
    op.output_desc[0].shape.as_mut().unwrap().dim = vec![3];
    let error = Air::read(&model.to_air()).unwrap_err();
    expect!["operator y yields f32[3], but its value %y is f32[2]"].assert_eq(&error.to_string());
    model.0.graph[0].attr.clear();
    let error = Air::read(&model.to_air()).unwrap_err();
    expect!["the model was not exported by hcom: the attribute _hcom_text is missing"]
        .assert_eq(&error.to_string());
    assert!(Air::read(b"no model").is_err());
}

#[test]
fn groups_have_names_of_their_own() {
    assert_eq!(group_name(&[0, 1, 2], 3), "hccl_world_group");
    assert_eq!(group_name(&[0, 2, 1], 3), "ranks_0_2_1");
    let [even, odd] = [0, 1].map(|first| {
        let ranks: Vec<u32> = (0..200).map(|rank| 2 * rank + first).collect();
        group_name(&ranks, 400)
    });
    assert!(even.len() <= 128 && even != odd, "{even} {odd}");
}

#[test]
fn the_configuration_holds_every_rank_and_group() {
    let groups = BTreeSet::from([vec![0, 1], vec![1]]);
    let both = [relations("export", 2, &groups), numa(2)];
    let text = both
        .map(|file| serde_json::to_string_pretty(&file).unwrap())
        .join("\n");
    expect![[r#"
        {
          "deploy_config": [
            {
              "submodel_name": "export0.air",
              "deploy_device_id_list": "0:0:0"
            },
            {
              "submodel_name": "export1.air",
              "deploy_device_id_list": "0:0:1"
            }
          ],
          "model_name_to_instance_id": [
            {
              "submodel_name": "export0.air",
              "model_instance_id": 0
            },
            {
              "submodel_name": "export1.air",
              "model_instance_id": 1
            }
          ],
          "comm_group": [
            {
              "group_name": "hccl_world_group",
              "group_rank_list": "[0, 1]"
            },
            {
              "group_name": "ranks_1",
              "group_rank_list": "[1]"
            }
          ],
          "rank_table": [
            {
              "rank_id": 0,
              "model_instance_id": 0
            },
            {
              "rank_id": 1,
              "model_instance_id": 1
            }
          ]
        }
        {
          "cluster": [
            {
              "cluster_nodes": [
                {
                  "node_id": 0,
                  "node_type": "ATLAS800",
                  "ipaddr": "127.0.0.1",
                  "port": 29500,
                  "item_list": [
                    {
                      "item_id": 0
                    },
                    {
                      "item_id": 1
                    }
                  ]
                }
              ],
              "nodes_toplogy": {}
            }
          ],
          "item_def": [
            {
              "item_type": "Ascend910"
            }
          ],
          "node_def": [
            {
              "item": [
                {
                  "item_type": "Ascend910"
                }
              ]
            }
          ]
        }"#]]
    .assert_eq(&text);
}
