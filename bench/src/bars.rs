//! Shares as bars.

use crate::svg::Drawing;

/// The bars of one load.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Group {
    pub(crate) load: &'static str,
    /// Of each contender but the one that is the whole, at most five.
    pub(crate) bars: Vec<Bar>,
}

/// A contender's share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bar {
    pub(crate) contender: &'static str,
    /// None when it was not measured.
    pub(crate) share: Option<f64>,
    /// What the paper reports.
    pub(crate) paper: Option<f64>,
}

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
/// How what the paper reports is drawn.
const PAPER_MARK: &str = "stroke=\"#c00000\" stroke-width=\"3\"";

/// Draws the groups beside each other as shares of that; a mark shows what the paper reports.
pub(crate) fn draw(of: &str, groups: &[Group]) -> String {
    let shares = groups.iter().flat_map(|group| &group.bars).filter_map(|bar| bar.share);
    let top = shares.fold(1.0, f64::max).min(SHARE_MAX);
    let height = |share: f64| (BOTTOM - TOP) * share.min(top) / top;
    let mut drawing = Drawing::new(&format!("Share of {of}"), WIDTH, HEIGHT);
    draw_scale(&mut drawing, of, &height);
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    let width = (RIGHT - LEFT) / (bars as f64 + GAP * groups.len() as f64);
    let mut left = LEFT + width * GAP / 2.0;
    for group in groups {
        let centre = left + width * group.bars.len() as f64 / 2.0;
        drawing.text((centre, BOTTOM + 20.0), "middle", group.load);
        for (bar, colour) in group.bars.iter().zip(COLOURS) {
            draw_bar(&mut drawing, bar, colour, (left, width), &height);
            left += width;
        }
        left += width * GAP;
    }
    if let Some(group) = groups.first() {
        draw_legend(&mut drawing, group);
    }
    drawing.finish()
}

fn draw_scale(drawing: &mut Drawing, of: &str, height: &dyn Fn(f64) -> f64) {
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let y = BOTTOM - height(share);
        let colour = if share == 1.0 { "#444" } else { "#ddd" };
        drawing.line((LEFT, RIGHT), y, &format!("stroke=\"{colour}\""));
        drawing.text((LEFT - 6.0, y + 4.0), "end", &format!("{:.0} %", share * 100.0));
    }
    drawing.text((LEFT, TOP - 14.0), "start", &format!("share of {of}"));
}

fn draw_bar(drawing: &mut Drawing, bar: &Bar, colour: &str, (left, width): (f64, f64), height: &dyn Fn(f64) -> f64) {
    let centre = left + width / 2.0;
    match bar.share {
        Some(share) => {
            let (tall, percent) = (height(share), share * 100.0);
            let y = BOTTOM - tall;
            drawing.bar((left + 2.0, y), (width - 4.0, tall), colour, &format!("{}: {percent:.0} %", bar.contender));
            drawing.text((centre, y - 4.0), "middle", &format!("{percent:.0}"));
        }
        None => drawing.text((centre, BOTTOM - 4.0), "middle", "-"),
    }
    if let Some(share) = bar.paper {
        drawing.line((left, left + width), BOTTOM - height(share), PAPER_MARK);
    }
}

fn draw_legend(drawing: &mut Drawing, group: &Group) {
    let y = HEIGHT - 18.0;
    let step = (RIGHT - LEFT) / (group.bars.len() as f64 + 1.0);
    let mut x = LEFT;
    for (bar, colour) in group.bars.iter().zip(COLOURS) {
        drawing.legend((x, y), colour, bar.contender);
        x += step;
    }
    drawing.line((x, x + 14.0), y - 4.0, PAPER_MARK);
    drawing.text((x + 19.0, y), "start", "in the paper");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_tall_as_their_shares() {
        let bar = |contender, share, paper| Bar { contender, share, paper };
        let bars = vec![bar("HS/eth", Some(0.5), Some(0.96)), bar("NFS", None, None)];
        let svg = draw("the local disk", &[Group { load: "file copy", bars }]);
        assert!(svg.contains("height=\"120.0\" fill=\"#1f5fa8\""), "{svg}");
        assert!(svg.contains(">file copy<") && svg.contains("in the paper"), "{svg}");
        assert_eq!(svg.matches("<title>HS/eth: 50 %</title>").count(), 1);
    }
}
