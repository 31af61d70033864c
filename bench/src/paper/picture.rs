//! The table as bars, in SVG 1.1 that needs nothing else.

use std::fmt::Write;

use super::shares::{Bar, Group};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 340.0;
/// Of the field with the bars.
const LEFT: f64 = 50.0;
const RIGHT: f64 = 710.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 270.0;
/// Of each contender, told apart also without colours by their order.
const COLOURS: [&str; 5] = ["#1f5fa8", "#5b9bd5", "#2e8b57", "#c98a1b", "#8c8c8c"];
/// The space between the bars of one load and the next, in bars.
const GAP: f64 = 1.5;
/// How far beyond the local disk the field reaches at the most.
const SHARE_MAX: f64 = 1.5;

/// Draws the groups beside each other; a mark shows what the paper reports.
pub(super) fn draw(groups: &[Group]) -> String {
    let shares = groups.iter().flat_map(|group| &group.bars).filter_map(|bar| bar.share);
    let top = shares.fold(1.0, f64::max).min(SHARE_MAX);
    let height = |share: f64| (BOTTOM - TOP) * share.min(top) / top;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>Share of the local disk</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    draw_scale(&mut svg, &height);
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    let width = (RIGHT - LEFT) / (bars as f64 + GAP * groups.len() as f64);
    let mut left = LEFT + width * GAP / 2.0;
    for group in groups {
        let centre = left + width * group.bars.len() as f64 / 2.0;
        text(&mut svg, centre, BOTTOM + 20.0, "middle", group.load);
        for (bar, colour) in group.bars.iter().zip(COLOURS) {
            draw_bar(&mut svg, bar, colour, (left, width), &height);
            left += width;
        }
        left += width * GAP;
    }
    if let Some(group) = groups.first() {
        draw_legend(&mut svg, group);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_scale(svg: &mut String, height: &dyn Fn(f64) -> f64) {
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let y = BOTTOM - height(share);
        let colour = if share == 1.0 { "#444" } else { "#ddd" };
        line(svg, (LEFT, RIGHT), y, &format!("stroke=\"{colour}\""));
        text(svg, LEFT - 6.0, y + 4.0, "end", &format!("{:.0} %", share * 100.0));
    }
    text(svg, LEFT, TOP - 14.0, "start", "share of the local disk");
}

fn draw_bar(svg: &mut String, bar: &Bar, colour: &str, (left, width): (f64, f64), height: &dyn Fn(f64) -> f64) {
    let centre = left + width / 2.0;
    match bar.share {
        Some(share) => {
            let (tall, wide) = (height(share), width - 4.0);
            let (x, y) = (left + 2.0, BOTTOM - tall);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{tall:.1}\" fill=\"{colour}\">\
                 <title>{}: {:.0} %</title></rect>",
                bar.contender,
                share * 100.0
            );
            text(svg, centre, y - 4.0, "middle", &format!("{:.0}", share * 100.0));
        }
        None => text(svg, centre, BOTTOM - 4.0, "middle", "-"),
    }
    if let Some(share) = bar.paper {
        line(svg, (left, left + width), BOTTOM - height(share), "stroke=\"#c00000\" stroke-width=\"3\"");
    }
}

fn draw_legend(svg: &mut String, group: &Group) {
    let y = HEIGHT - 18.0;
    let step = (RIGHT - LEFT) / (group.bars.len() as f64 + 1.0);
    let mut x = LEFT;
    for (bar, colour) in group.bars.iter().zip(COLOURS) {
        let _ =
            writeln!(svg, "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>", y - 10.0);
        text(svg, x + 17.0, y, "start", bar.contender);
        x += step;
    }
    line(svg, (x, x + 14.0), y - 4.0, "stroke=\"#c00000\" stroke-width=\"3\"");
    text(svg, x + 19.0, y, "start", "in the paper");
}

fn line(svg: &mut String, (from, to): (f64, f64), y: f64, style: &str) {
    let _ = writeln!(svg, "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" {style}/>");
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, what: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_tall_as_their_shares() {
        let bar = |contender, share, paper| Bar { contender, share, paper };
        let bars = vec![bar("HS/eth", Some(0.5), Some(0.96)), bar("NFS", None, None)];
        let svg = draw(&[Group { load: "file copy", bars }]);
        assert!(svg.contains("height=\"120.0\" fill=\"#1f5fa8\""), "{svg}");
        assert!(svg.contains(">file copy<") && svg.contains("in the paper"), "{svg}");
        assert_eq!(svg.matches("<title>HS/eth: 50 %</title>").count(), 1);
    }
}
