//! A model exported by all ranks: files, weights, groups.

mod support;

use hcom_convert::ge::Air;
use hcom_patch::{DType, ExportOptions, ReduceOp, Root, Tensor, Weights, dist, export_to};
use std::path::Path;
use std::sync::Arc;

/// A share of a tensor-parallel layer, with a group of rank 1 alone.
fn layer(w: &Tensor) -> impl Fn(&[Tensor]) -> Result<Vec<Tensor>, hcom_patch::Error> {
    let w = w.clone();
    move |inputs| {
        let mut y = inputs[0].matmul(&w)?.gelu()?;
        dist::all_reduce(&mut y, ReduceOp::Sum, &dist::world()?)?;
        if dist::rank()? == 1 {
            dist::broadcast(&mut y, Root::Global(1), &dist::new_group(&[1])?)?;
        }
        Ok(vec![y])
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What the two ranks of a job have written.
fn check_files(dir: &Path, weights_inside: bool) {
    for rank in 0..2 {
        let air = std::fs::read(dir.join(format!("mlp{rank}.air"))).unwrap();
        let air = Air::read(&air).unwrap();
        let folder = dir.join(format!("rank_{rank}"));
        assert_eq!(air.graph.to_string(), read(&folder.join("graph.hcom")));
        let data: Vec<f32> = (0..6).map(|at| at as f32 + 10.0 * rank as f32).collect();
        if weights_inside {
            let [(1, literal)] = &air.weights[..] else {
                panic!("{:?}", air.weights)
            };
            assert_eq!(literal.to_vec::<f32>(), Some(data));
        } else {
            let bytes: Vec<u8> = data.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(std::fs::read(folder.join("layer_w")).unwrap(), bytes);
        }
        let pbtxt = read(&folder.join("dynamo.pbtxt"));
        assert_eq!(pbtxt.matches("op: \"HcomAllReduce\"").count(), 1);
        let constants = if weights_inside {
            "Const"
        } else {
            "FileConstant"
        };
        assert_eq!(pbtxt.matches(&format!("op: {constants:?}")).count(), 1);
    }
    let relations = read(&dir.join("model_relation_config.json"));
    assert_eq!(relations.matches("\"mlp0.air\"").count(), 2);
    assert_eq!(relations.matches("\"[0, 1]\"").count(), 1);
    assert_eq!(
        relations.matches("\"[1]\"").count(),
        1,
        "a group without rank 0 is there"
    );
    assert_eq!(
        read(&dir.join("numa_config.json"))
            .matches("item_id")
            .count(),
        2
    );
}

#[test]
fn ranks_of_a_job_write_their_models_and_all_groups() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let dir = folder.path().to_owned();
    support::ranks(2, hcom_test::Kind::Threads, move |rank| {
        let data: Vec<f32> = (0..6)
            .map(|at| at as f32 + 10.0 * rank.rank() as f32)
            .collect();
        let w = Tensor::from_slice(&data, &[3, 2]).unwrap().named("layer.w");
        let x = Tensor::placeholder(DType::F32, &[4, 3]);
        for weights in [Weights::Beside, Weights::Fitting] {
            let options = ExportOptions {
                name: "mlp".to_owned(),
                weights,
            };
            let exported = export_to(&dir, layer(&w), std::slice::from_ref(&x), &options).unwrap();
            assert!(exported.files.iter().all(|file| file.exists()));
            dist::barrier(&dist::world().unwrap()).unwrap();
            check_files(&dir, weights == Weights::Fitting);
            dist::barrier(&dist::world().unwrap()).unwrap();
        }
    });
}

#[test]
fn ranks_without_a_device_come_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let options = ExportOptions {
        name: "mlp".to_owned(),
        ..ExportOptions::default()
    };
    for rank in 0..2 {
        dist::init_abstract(rank, 2).unwrap();
        let w = Tensor::placeholder(DType::F32, &[3, 2]).named("w");
        let x = Tensor::placeholder(DType::F32, &[4, 3]);
        export_to(folder.path(), layer(&w), &[x], &options).unwrap();
    }
    let relations = read(&folder.path().join("model_relation_config.json"));
    assert_eq!(relations.matches("\"[0, 1]\"").count(), 1);
    assert_eq!(relations.matches("\"[1]\"").count(), 1);
    dist::finalize();
}

#[test]
fn a_world_of_one_has_no_numbers_in_its_names() {
    let folder = tempfile::tempdir().unwrap();
    dist::init_abstract(0, 1).unwrap();
    let x = Tensor::placeholder(DType::F32, &[2]);
    let exported = export_to(
        folder.path(),
        |inputs| Ok(vec![inputs[0].relu()?]),
        &[x],
        &ExportOptions::default(),
    )
    .unwrap();
    let names: Vec<_> = exported
        .files
        .iter()
        .map(|file| {
            file.strip_prefix(folder.path())
                .unwrap()
                .display()
                .to_string()
        })
        .collect();
    assert_eq!(names, ["export.air", "dynamo.pbtxt", "graph.hcom"]);
    dist::finalize();
}
