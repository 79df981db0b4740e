//! The drawing of a graph that `hcom graph --svg` prints: data flows down, every group has its colour.

use std::collections::HashMap;
use std::fmt::Write as _;

use hcom_ir::{Class, Def, Graph, Group, GroupId, Id, Node};

mod layout;

const ROW: f64 = 84.0;
const BOX_HEIGHT: f64 = 44.0;
const MARGIN: f64 = 32.0;
const HEADER: f64 = 56.0;
const LEGEND_LINE: f64 = 22.0;

/// Fill and line of a group's collectives; distinct for readers with any kind of colour vision (Okabe and Ito).
const GROUP_COLOURS: [(&str, &str); 6] = [
    ("#e69f00", "#9a6a00"),
    ("#56b4e9", "#1d6f9f"),
    ("#009e73", "#00664a"),
    ("#cc79a7", "#8d3f69"),
    ("#d55e00", "#8f3f00"),
    ("#0072b2", "#004a75"),
];

const STYLE: &str = "\
.paper{fill:#fff}.title{font:600 17px system-ui,sans-serif;fill:#1f2933}.note{font:12px system-ui,sans-serif;fill:#52606d}\
.op{font:600 13px system-ui,sans-serif;fill:#1f2933;text-anchor:middle}.ty{font:11px ui-monospace,monospace;fill:#52606d;text-anchor:middle}\
.on .op{fill:#16202a}.on .ty{fill:#1f2933}\
.edge{fill:none;stroke:#9aa5b1;stroke-width:1.6}.order{fill:none;stroke-width:1.6;stroke-dasharray:2 4;stroke-linecap:round}\
.compute rect{fill:#f5f7fa;stroke:#9aa5b1}.view rect{fill:#fff;stroke:#cbd2d9}.input rect,.output rect{fill:#e4e7eb;stroke:#7b8794}\
.write rect{fill:#fff3c4;stroke:#b44d12}.custom rect{fill:#ffe3e3;stroke:#ba2525}\
@media(prefers-color-scheme:dark){.paper{fill:#16202a}.title{fill:#f5f7fa}.op{fill:#f5f7fa}.note,.ty{fill:#9fb3c8}.edge{stroke:#627d98}\
.compute rect{fill:#243b53;stroke:#486581}.view rect{fill:#16202a;stroke:#486581}.input rect,.output rect{fill:#334e68;stroke:#829ab1}\
.write rect{fill:#513c06}.custom rect{fill:#610404}}";

/// One box of the drawing.
struct Shape {
    class: &'static str,
    group: Option<GroupId>,
    title: String,
    detail: String,
    tooltip: String,
}

impl Shape {
    fn width(&self) -> f64 {
        let title = self.title.chars().count() as f64 * 7.6;
        let detail = self.detail.chars().count() as f64 * 6.7;
        title.max(detail) + 28.0
    }
}

/// The graph as an SVG document.
pub(super) fn svg(graph: &Graph) -> String {
    let mut boxes = Vec::new();
    let mut edges = Vec::new();
    let inputs = graph.inputs().len();
    for input in graph.inputs() {
        boxes.push(Shape {
            class: "input",
            group: None,
            title: match input.mutable {
                true => format!("%{} (mut)", input.name),
                false => format!("%{}", input.name),
            },
            detail: graph.ty(input.value).display(graph.symbols()).to_string(),
            tooltip: format!("input {}", input.name),
        });
    }
    let index_of = |value| match graph.value(value).def {
        Def::Input(input) => input as usize,
        Def::Node { node, .. } => inputs + node_index(node),
    };
    for (at, (id, node)) in graph.nodes().enumerate() {
        boxes.push(node_box(graph, node, graph.print_node(id)));
        for operand in &node.operands {
            edges.push((index_of(*operand), inputs + at));
        }
    }
    for (name, value) in graph.output_names().iter().zip(graph.outputs()) {
        edges.push((index_of(*value), boxes.len()));
        boxes.push(Shape {
            class: "output",
            group: None,
            title: format!("return {name}"),
            detail: graph.ty(*value).display(graph.symbols()).to_string(),
            tooltip: format!("output {name}"),
        });
    }
    let widths: Vec<f64> = boxes.iter().map(Shape::width).collect();
    let layout = layout::layout(&widths, &edges);
    render(graph, &boxes, &edges, &layout)
}

/// Nodes are numbered in program order.
fn node_index(id: hcom_ir::NodeId) -> usize {
    id.index()
}

fn node_box(graph: &Graph, node: &Node, text: String) -> Shape {
    let class = match node.op.class() {
        Class::Source | Class::Compute => "compute",
        Class::View => "view",
        Class::Write => "write",
        Class::Custom => "custom",
        _ => "on",
    };
    let group = node.group();
    let title = match group {
        Some(group) => format!("{} @{}", node.op.name(), graph.group(group).name),
        None => node.op.name().to_owned(),
    };
    let detail = match node.results.as_slice() {
        [] => String::new(),
        [first, rest @ ..] => {
            let more = match rest.len() {
                0 => String::new(),
                more => format!(" +{more}"),
            };
            let value = graph.value(*first);
            format!(
                "%{} {}{more}",
                value.name,
                value.ty.display(graph.symbols())
            )
        }
    };
    Shape {
        class,
        group,
        title,
        detail,
        tooltip: text,
    }
}

fn render(
    graph: &Graph,
    boxes: &[Shape],
    edges: &[(usize, usize)],
    layout: &layout::Layout,
) -> String {
    let groups: Vec<(GroupId, &Group)> = graph.groups().collect();
    let colour: HashMap<GroupId, (&str, &str)> = groups
        .iter()
        .enumerate()
        .map(|(index, (id, _))| (*id, GROUP_COLOURS[index % GROUP_COLOURS.len()]))
        .collect();
    let top = HEADER + MARGIN / 2.0;
    let rows = top + layout.row_count() as f64 * ROW;
    let legend = groups.len() as f64 * LEGEND_LINE;
    let text_width = groups
        .iter()
        .map(|(_, group)| group.to_string().chars().count() + 6)
        .chain([graph.name().chars().count() + 40])
        .max()
        .unwrap_or(0) as f64
        * 7.0;
    let width = layout.width().max(text_width) + 2.0 * MARGIN;
    let shift = MARGIN + (width - 2.0 * MARGIN - layout.width()) / 2.0;
    let height = rows + legend + MARGIN;
    let x = |at: usize| layout.x[at] + shift;
    let y = |at: usize| top + layout.rows[at] as f64 * ROW + BOX_HEIGHT / 2.0;

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" aria-label=\"Graph {name}\">\n<style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" x=\"{MARGIN}\" y=\"34\">@{name}</text>\n",
        name = escape(graph.name()),
    );
    let collectives = boxes.iter().filter(|item| item.class == "on").count();
    let _ = writeln!(
        out,
        "<text class=\"note\" x=\"{MARGIN}\" y=\"52\">{} operations, {collectives} of them communication, {} ranks</text>",
        graph.nodes().len(),
        graph.world_size(),
    );
    for path in &layout.paths {
        let (first, last) = (path[0], path[path.len() - 1]);
        let points: Vec<(f64, f64)> = path
            .iter()
            .map(|&at| {
                let half = match at {
                    _ if at == first => BOX_HEIGHT / 2.0,
                    _ if at == last => -BOX_HEIGHT / 2.0,
                    _ => 0.0,
                };
                (x(at), y(at) + half)
            })
            .collect();
        let _ = writeln!(out, "<path class=\"edge\" d=\"{}\"/>", curve(&points));
    }
    for (line, ends) in order_lines(boxes, edges, &groups, &colour) {
        let points = ends.map(|at| (x(at) + boxes[at].width() / 2.0 - 10.0, y(at)));
        let [(x0, y0), (x1, y1)] = points;
        let bend = x0.max(x1) + 34.0;
        let _ = writeln!(
            out,
            "<path class=\"order\" stroke=\"{line}\" d=\"M{x0:.1} {y0:.1}C{bend:.1} {y0:.1} {bend:.1} {y1:.1} {x1:.1} {y1:.1}\"/>"
        );
    }
    for (at, item) in boxes.iter().enumerate() {
        let round = match item.class {
            "input" | "output" => BOX_HEIGHT / 2.0,
            _ => 7.0,
        };
        let paint = item
            .group
            .and_then(|group| colour.get(&group))
            .map_or(String::new(), |(fill, line)| {
                format!(" fill=\"{fill}\" stroke=\"{line}\"")
            });
        let (center, middle, wide) = (x(at), y(at), item.width());
        let title_y = match item.detail.is_empty() {
            true => middle + 4.5,
            false => middle - 3.0,
        };
        let _ = writeln!(
            out,
            "<g class=\"{}\"><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{BOX_HEIGHT}\" rx=\"{round}\" stroke-width=\"1.4\"{paint}/><text class=\"op\" x=\"{center:.1}\" y=\"{title_y:.1}\">{}</text><text class=\"ty\" x=\"{center:.1}\" y=\"{:.1}\">{}</text></g>",
            item.class,
            escape(&item.tooltip),
            center - wide / 2.0,
            middle - BOX_HEIGHT / 2.0,
            escape(&item.title),
            middle + 13.0,
            escape(&item.detail),
        );
    }
    for (index, (id, group)) in groups.iter().enumerate() {
        let (fill, line) = colour[id];
        let at = rows + index as f64 * LEGEND_LINE;
        let _ = writeln!(
            out,
            "<rect x=\"{MARGIN}\" y=\"{:.1}\" width=\"14\" height=\"14\" rx=\"3\" fill=\"{fill}\" stroke=\"{line}\"/><text class=\"note\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            at,
            MARGIN + 22.0,
            at + 11.5,
            escape(&group.to_string()),
        );
    }
    out.push_str("</svg>\n");
    out
}

/// Consecutive communication of a group that only its order keeps apart, no data: line colour and the two boxes.
fn order_lines<'a>(
    boxes: &[Shape],
    edges: &[(usize, usize)],
    groups: &[(GroupId, &Group)],
    colour: &HashMap<GroupId, (&'a str, &'a str)>,
) -> Vec<(&'a str, [usize; 2])> {
    let mut lines = Vec::new();
    for (id, _) in groups {
        let members: Vec<usize> = (0..boxes.len())
            .filter(|&at| boxes[at].group == Some(*id))
            .collect();
        for pair in members.windows(2) {
            if !leads_to(edges, pair[0], pair[1]) {
                lines.push((colour[id].1, [pair[0], pair[1]]));
            }
        }
    }
    lines
}

/// Whether data flows from one box to a later one.
fn leads_to(edges: &[(usize, usize)], from: usize, to: usize) -> bool {
    let mut reached = vec![false; to + 1];
    reached[from] = true;
    // Edges are in the order of their targets, and lead from earlier boxes to later ones.
    for &(source, target) in edges.iter().filter(|(_, target)| *target <= to) {
        reached[target] |= reached[source];
    }
    reached[to]
}

/// A curve through the points that runs straight down at each.
fn curve(points: &[(f64, f64)]) -> String {
    let mut path = format!("M{:.1} {:.1}", points[0].0, points[0].1);
    for pair in points.windows(2) {
        let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
        let middle = (y0 + y1) / 2.0;
        let _ = write!(
            path,
            "C{x0:.1} {middle:.1} {x1:.1} {middle:.1} {x1:.1} {y1:.1}"
        );
    }
    path
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_shows_every_operation_once_and_escapes_text() {
        let source = "hcom 1\ngroup @tp = ranks(0, 1)\ngraph @mlp(%x: f32[2, 3], %w: f32[3, 2]) -> f32[2, 2] {\n  %p = matmul %x, %w\n  %y = all_reduce %p, op = sum, group = @tp\n  return %y\n}\n";
        let graph = hcom_ir::parse(source, "mlp.hcom").unwrap();
        let svg = svg(&graph);
        assert_eq!(svg.matches("<g class=").count(), 5);
        for text in [
            "@mlp",
            "matmul",
            "all_reduce @tp",
            "%y f32[2, 2]",
            "return y",
            "@tp = ranks(0, 1)",
        ] {
            assert!(svg.contains(text), "{text} is missing in\n{svg}");
        }
        assert!(svg.contains("2 operations, 1 of them communication, 2 ranks"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(escape("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }

    #[test]
    fn an_empty_graph_has_a_drawing() {
        let graph = hcom_ir::Builder::new("empty").finish(Vec::new()).unwrap();
        assert!(svg(&graph).ends_with("</svg>\n"));
    }
}
