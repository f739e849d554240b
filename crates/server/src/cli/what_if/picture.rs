//! Old against new by day, as SVG: a panel for each currency, and one for the fixed parts, which are all in USDT.
//!
//! Days without orders stand at zero. Few days are bars, many are lines. Colours are told apart by people who see fewer of them, too, and
//! old is besides pale or dashed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, anyhow};
use countersign_domain::time::{UnixMillis, parse_rfc3339, rfc3339};

use super::report::{Fees, Report};

const DAY_MS: i64 = 86_400_000;
/// Up to so many days are bars.
const BARS_MAX: i64 = 31;
const WIDTH: f64 = 960.0;
const HEAD: f64 = 84.0;
const PANEL: f64 = 250.0;
/// What is around a plot within its panel.
const LEFT: f64 = 96.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 40.0;
/// Blue and vermilion of Okabe and Ito.
const OLD: &str = "#0072b2";
const NEW: &str = "#d55e00";
const TICKS_X_MAX: i64 = 8;

/// Fees of a day: old and new.
type Pair = [f64; 2];

/// What a panel shows: by number of day.
struct Panel {
    title: String,
    coin: String,
    days: BTreeMap<i64, Pair>,
}

/// The days that all panels show.
#[derive(Clone, Copy)]
struct Days {
    first: i64,
    last: i64,
}

/// The picture.
pub fn svg(report: &Report) -> anyhow::Result<String> {
    let (panels, days) = panels(report)?;
    let mut out = String::new();
    let height =
        HEAD + PANEL * panels.iter().fold(0.0, |count, _| count + 1.0) + if days.is_some() { 0.0 } else { 60.0 };
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    let about = format!("{}: fees by day, as they were and under {}", report.sub_merchant_id, report.rule());
    let _ = writeln!(out, "<title>{}</title>", escaped(&about));
    text(&mut out, (24.0, 30.0), "font-size=\"17\" font-weight=\"bold\"", &report.sub_merchant_id);
    text(&mut out, (24.0, 52.0), "", &format!("fees by day (time zone {}), as they were and under", report.time_zone));
    text(&mut out, (24.0, 68.0), "", &report.rule());
    legend(&mut out);
    match days {
        None => text(&mut out, (24.0, HEAD + 30.0), "", "no orders were paid in this time"),
        Some(days) => {
            let mut top = HEAD;
            for panel in &panels {
                panel.draw(&mut out, top, days);
                top += PANEL;
            }
        }
    }
    out.push_str("</svg>\n");
    Ok(out)
}

fn panels(report: &Report) -> anyhow::Result<(Vec<Panel>, Option<Days>)> {
    let mut by_coin: BTreeMap<&str, BTreeMap<i64, Pair>> = BTreeMap::new();
    let mut fixed: BTreeMap<i64, Pair> = BTreeMap::new();
    for day in &report.days {
        let number = number(&day.day)?;
        let pair = |part: fn(&Fees) -> &str| -> anyhow::Result<Pair> {
            let read = |text: &str| text.parse::<f64>().with_context(|| format!("{text} is no amount"));
            Ok([read(part(&day.old))?, read(part(&day.new))?])
        };
        by_coin.entry(&day.currency).or_default().insert(number, pair(|fees| &fees.r_fee)?);
        let (sum, more) = (fixed.entry(number).or_default(), pair(|fees| &fees.f_fee)?);
        *sum = [sum[0] + more[0], sum[1] + more[1]];
    }
    let days = fixed
        .first_key_value()
        .zip(fixed.last_key_value())
        .map(|(first, last)| Days { first: *first.0, last: *last.0 });
    let mut panels: Vec<Panel> = by_coin
        .into_iter()
        .map(|(coin, days)| Panel { title: format!("r_fee of orders in {coin}"), coin: coin.to_owned(), days })
        .collect();
    if days.is_some() {
        panels.push(Panel { title: "f_fee of all orders".to_owned(), coin: "USDT".to_owned(), days: fixed });
    }
    Ok((panels, days))
}

/// Days since 1970.
fn number(day: &str) -> anyhow::Result<i64> {
    let at = parse_rfc3339(&format!("{day}T00:00:00Z")).ok_or_else(|| anyhow!("{day} is no day"))?;
    Ok(at.0.div_euclid(DAY_MS))
}

fn name(day: i64) -> String {
    rfc3339(UnixMillis(day.saturating_mul(DAY_MS))).chars().take(10).collect()
}

impl Days {
    const fn count(self) -> i64 {
        self.last - self.first + 1
    }

    /// The middle of a day's place on the axis.
    fn x(self, day: i64) -> f64 {
        LEFT + (float(day - self.first) + 0.5) * self.width()
    }

    fn width(self) -> f64 {
        (WIDTH - LEFT - RIGHT) / float(self.count())
    }
}

/// Numbers of days are small.
fn float(number: i64) -> f64 {
    i32::try_from(number).map_or(f64::from(i32::MAX), f64::from)
}

impl Panel {
    fn draw(&self, out: &mut String, top: f64, days: Days) {
        let largest = self.days.values().flatten().fold(0.0_f64, |most, value| most.max(*value));
        let step = step(largest);
        let steps = (largest / step).ceil().max(1.0);
        let (bottom, height) = (top + PANEL - BOTTOM, PANEL - TOP - BOTTOM);
        let y = |value: f64| bottom - value / (step * steps) * height;
        text(out, (24.0, top + 20.0), "font-weight=\"bold\"", &format!("{}, in {} a day", self.title, self.coin));
        let mut tick = 0.0;
        while tick <= steps {
            let at = y(tick * step);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"{}\"/>",
                WIDTH - RIGHT,
                if tick > 0.0 { "#ddd" } else { "#555" }
            );
            text(out, (LEFT - 8.0, at + 4.0), "text-anchor=\"end\"", &label(tick * step, step));
            tick += 1.0;
        }
        axis(out, bottom, days);
        if days.count() <= BARS_MAX {
            self.bars(out, days, &y);
        } else {
            self.lines(out, days, &y);
        }
    }

    fn bars(&self, out: &mut String, days: Days, y: &impl Fn(f64) -> f64) {
        let width = (days.width() * 0.38).min(60.0);
        for (day, [old, new]) in &self.days {
            let middle = days.x(*day);
            for (left, value, style) in [
                (middle - width, *old, format!("fill=\"{OLD}\" fill-opacity=\"0.35\" stroke=\"{OLD}\"")),
                (middle, *new, format!("fill=\"{NEW}\" stroke=\"{NEW}\"")),
            ] {
                let _ = writeln!(
                    out,
                    "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" {style}/>",
                    y(value),
                    y(0.0) - y(value)
                );
            }
        }
    }

    fn lines(&self, out: &mut String, days: Days, y: &impl Fn(f64) -> f64) {
        // Old over new: through its gaps both are seen.
        for (which, style) in
            [(1, format!("stroke=\"{NEW}\"")), (0, format!("stroke=\"{OLD}\" stroke-dasharray=\"5 3\""))]
        {
            let points: Vec<String> = self
                .with_zeros(days)
                .iter()
                .map(|(day, pair)| format!("{:.1},{:.1}", days.x(*day), y(pair[which])))
                .collect();
            let _ = writeln!(
                out,
                "<polyline fill=\"none\" stroke-width=\"1.6\" stroke-linejoin=\"round\" {style} points=\"{}\"/>",
                points.join(" ")
            );
        }
    }

    /// The days with orders, and before and after each the day without, at zero.
    fn with_zeros(&self, days: Days) -> BTreeMap<i64, Pair> {
        let mut all = self.days.clone();
        let beside = self.days.keys().flat_map(|day| [day - 1, day + 1]).chain([days.first, days.last]);
        for day in beside.filter(|day| (days.first..=days.last).contains(day)) {
            all.entry(day).or_default();
        }
        all
    }
}

fn axis(out: &mut String, bottom: f64, days: Days) {
    let every = (days.count() + TICKS_X_MAX - 1) / TICKS_X_MAX;
    for day in (days.first..=days.last).step_by(usize::try_from(every).unwrap_or(1)) {
        let x = days.x(day);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom:.1}\" y2=\"{:.1}\" stroke=\"#555\"/>",
            bottom + 4.0
        );
        text(out, (x, bottom + 18.0), "text-anchor=\"middle\"", &name(day));
    }
}

fn legend(out: &mut String) {
    let x = WIDTH - RIGHT - 168.0;
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"20\" width=\"22\" height=\"12\" fill=\"{OLD}\" fill-opacity=\"0.35\" stroke=\"{OLD}\" stroke-dasharray=\"5 3\"/>\n\
         <rect x=\"{}\" y=\"20\" width=\"22\" height=\"12\" fill=\"{NEW}\" stroke=\"{NEW}\"/>",
        x + 92.0
    );
    text(out, (x + 28.0, 30.0), "", "old");
    text(out, (x + 120.0, 30.0), "", "new");
}

/// The distance between two ticks of an axis that goes to `largest`: 1, 2 or 5 and zeros.
fn step(largest: f64) -> f64 {
    if largest <= 0.0 {
        return 1.0;
    }
    let rough = largest / 4.0;
    let power = 10.0_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= rough).unwrap_or(10.0);
    times * power
}

/// A tick's value, with as many decimals as its step needs.
fn label(value: f64, step: f64) -> String {
    let (unit, name) = [(1e12, " tn"), (1e9, " bn"), (1e6, " M"), (1e4, " k")]
        .into_iter()
        .find(|(unit, _)| step * 4.0 >= *unit)
        .map_or((1.0, ""), |(unit, name)| (if name == " k" { 1e3 } else { unit }, name));
    let (value, mut step) = (value / unit, step / unit);
    let mut places = 0;
    while step < 0.999 && places < 8 {
        step *= 10.0;
        places += 1;
    }
    if value > 0.0 { format!("{value:.places$}{name}") } else { "0".to_owned() }
}

fn text(out: &mut String, (x, y): (f64, f64), style: &str, words: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>", escaped(words));
}

fn escaped(words: &str) -> String {
    words.chars().fold(String::with_capacity(words.len()), |mut out, sign| {
        match sign {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            sign if sign.is_control() => out.push('\u{fffd}'),
            sign => out.push(sign),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_their_labels_short() {
        for (largest, wanted, of_three) in [
            (0.0, 1.0, "3"),
            (3.0, 1.0, "3"),
            (10.0, 5.0, "15"),
            (0.000_004, 0.000_001, "0.000003"),
            (0.7, 0.2, "0.6"),
            (40_000.0, 10_000.0, "30 k"),
            (9_000_000.0, 5_000_000.0, "15 M"),
            (5e13, 2e13, "60 tn"),
        ] {
            let found = step(largest);
            assert!((found - wanted).abs() < wanted * 1e-9, "{largest}: {found}");
            assert_eq!(label(3.0 * found, found), of_three, "{largest}");
        }
    }

    #[test]
    fn what_stands_in_a_picture_is_escaped() {
        assert_eq!(escaped("a<b>&\"c\"\u{1b}"), "a&lt;b&gt;&amp;&quot;c&quot;\u{fffd}");
    }
}
