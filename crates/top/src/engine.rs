//! The part of the view about the crypto engine.

use crate::{
    rates::{Rates, quantile},
    table::{Column, fitting},
    trail::bar,
    view::{Line, number, wrapped},
};

/// The budget of a turn, in seconds: one of the bounds of the histogram of turns in the metrics.
const BUDGET: f64 = 0.0003;

/// The engine's state, its turns, stacks and line of waiting handshakes, and a row for each class of operations.
pub(crate) fn lines(rates: &Rates<'_>, width: usize) -> Vec<Line> {
    let Some(info) = rates.now.all("penstock_engine_info").first() else {
        return vec![Line::plain("no metrics of an engine: this is not penstock, or an older one")];
    };
    let gauge = |name: &str| rates.gauge(&format!("penstock_engine_{name}"), &[]).unwrap_or(0.0);
    let name = info.label("engine");
    let mut lines = vec![match gauge("benched") > 0.0 {
        true => Line::bad(format!("ENGINE {name}: benched {} times, computing natively", gauge("benched_total"))),
        false => Line::title(format!("ENGINE {name}")),
    }];
    lines.extend(turns(rates, width));
    let stack = |state| rates.gauge("penstock_engine_stacks", &[("state", state)]).unwrap_or(0.0);
    let waiting = [
        format!(
            "  stacks {} used, {} kept, {} at most",
            number(stack("used")),
            number(stack("kept")),
            number(stack("most"))
        ),
        format!(
            "  line {} waiting, {} at most, {}/s turned away, {}/s left",
            number(gauge("waiting")),
            number(gauge("waiting_max")),
            number(rates.rate("penstock_engine_turned_away_total", &[])),
            number(rates.rate("penstock_engine_left_total", &[])),
        ),
    ];
    lines.extend(wrapped(&waiting, width));
    let closed =
        ["full", "idle", "age"].map(|reason| rates.grown("penstock_engine_closed_total", &[("reason", reason)]));
    let all: f64 = closed.iter().sum();
    let share = |count: f64| if all > 0.0 { 100.0 * count / all } else { 0.0 };
    lines.push(Line::plain(format!(
        "  batches closed full {:.0} %, as nothing else was runnable {:.0} %, by age {:.0} %",
        share(closed[0]),
        share(closed[1]),
        share(closed[2])
    )));
    lines.extend(device(rates));
    let shown = fitting(&COLUMNS, width.saturating_sub(CLASS));
    let heads = shown.iter().map(|at| padded(COLUMNS[*at], COLUMNS[*at].heading)).collect::<String>();
    lines.push(Line::head(format!("{:<CLASS$}{heads}", "CLASS")));
    let classes = rates.now.all("penstock_engine_operations_total");
    lines.extend(classes.iter().map(|series| class(rates, series.label("class"), &shown)));
    if classes.is_empty() {
        lines.push(Line::plain("  no operation yet"));
    }
    lines
}

fn turns(rates: &Rates<'_>, width: usize) -> Vec<Line> {
    let buckets = rates.buckets("penstock_engine_turn_seconds_bucket", &[]);
    let all: f64 = buckets.iter().map(|(_, count)| count).sum();
    let within: f64 = buckets.iter().filter(|(bound, _)| *bound <= BUDGET).map(|(_, count)| count).sum();
    let share = if all > 0.0 { format!("{:.1} %", 100.0 * within / all) } else { "none".into() };
    let longest = rates.gauge("penstock_engine_turn_seconds_max", &[]).unwrap_or(0.0);
    let busy = rates.rate("penstock_engine_turn_seconds_sum", &[]);
    let full = rates.rate("haproxy_process_ssl_cache_misses_total", &[]);
    let each = if full > 0.0 { format!(", {:.0} µs a full handshake", 1e6 * busy / full) } else { String::new() };
    let parts = [
        format!("  turns {}/s, {:.0} % of a core{each}", number(all / rates.between), 100.0 * busy),
        format!("  {share} within {:.0} µs, the longest ever {:.0} µs", BUDGET * 1e6, longest * 1e6),
    ];
    wrapped(&parts, width)
}

/// The state of the device: its rings, and the instances that are down; `None` if there is no device.
fn device(rates: &Rates<'_>) -> Option<Line> {
    let info = rates.now.all("penstock_device_info").first()?;
    let metric = |name: &str| format!("penstock_device_{name}");
    let gauge = |name: &str| rates.gauge(&metric(name), &[]).unwrap_or(0.0);
    let classes = rates.now.all("penstock_device_operations_total");
    let given: f64 =
        classes.iter().map(|series| rates.rate(&metric("operations_total"), &[("class", series.label("class"))])).sum();
    let rings: Vec<String> =
        rates.now.all("penstock_device_instance_requests").iter().map(|series| number(series.value)).collect();
    let instances = rates.now.all("penstock_device_instance_up");
    let down: Vec<&str> =
        instances.iter().filter(|series| series.value == 0.0).map(|series| series.label("instance")).collect();
    let text = format!(
        "  device {} by {}   {}/s   in progress {}, most {}   rings {}   full {}/s   benched {}",
        info.label("part"),
        info.label("library"),
        number(given),
        number(gauge("requests")),
        number(gauge("requests_max")),
        rings.join(" "),
        number(rates.rate(&metric("ring_full_total"), &[])),
        number(gauge("benched_total")),
    );
    Some(match down.is_empty() && gauge("benched_workers") == 0.0 {
        true => Line::plain(text),
        false => Line::bad(format!("{text}   down: {}", down.join(" "))),
    })
}

/// Width of the column with the names of classes.
const CLASS: usize = 18;

const fn column(heading: &'static str, width: usize, rank: u8) -> Column {
    Column { heading, width, rank }
}

const COLUMNS: [Column; 12] = [
    column("ops/s", 8, 0),
    column("batches/s", 10, 6),
    column("fill", 6, 1),
    column("of 1-8,9+", 11, 8),
    column("inline/s", 9, 7),
    column("few/s", 7, 9),
    column("ahead/s", 8, 10),
    column("wait p50", 10, 3),
    column("p99", 9, 2),
    column("redone", 7, 11),
    column("wrong", 6, 4),
    column("late", 6, 5),
];

/// Pads a cell: the histogram is aligned to the left, numbers to the right.
fn padded(column: Column, text: &str) -> String {
    match column.heading {
        "of 1-8,9+" => format!("  {text:<width$}", width = column.width - 2),
        _ => format!("{text:>width$}", width = column.width),
    }
}

fn class(rates: &Rates<'_>, class: &str, shown: &[usize]) -> Line {
    let labels = &[("class", class)];
    let metric = |name: &str| format!("penstock_engine_{name}");
    let rate = |name: &str| rates.rate(&metric(name), labels);
    let total = |name: &str| rates.gauge(&metric(name), labels).unwrap_or(0.0);
    let batches = rates.grown(&metric("batches_total"), labels);
    let fill = rates.grown(&metric("batch_operations_sum"), labels) / batches;
    let waits = rates.buckets(&metric("wait_seconds_bucket"), labels);
    let wait = |share| quantile(&waits, share).map_or_else(String::new, time);
    let [redone, wrong, late] = ["redone_total", "wrong_total", "late_total"].map(total);
    let cells: [String; COLUMNS.len()] = [
        number(rate("operations_total")),
        number(batches / rates.between),
        if batches > 0.0 { format!("{fill:.1}") } else { String::new() },
        bars(&rates.buckets(&metric("batch_operations_bucket"), labels)),
        number(rate("inline_total")),
        number(rate("few_total")),
        number(rate("ahead_total")),
        wait(0.5),
        wait(0.99),
        number(redone),
        number(wrong),
        number(late),
    ];
    let cells = shown.iter().map(|at| padded(COLUMNS[*at], &cells[*at])).collect::<String>();
    let text = format!("{class:<CLASS$}{cells}");
    if redone + wrong + late > 0.0 { Line::bad(text) } else { Line::plain(text) }
}

/// A histogram with one character per bucket; the fullest bucket has the full height of a line.
fn bars(buckets: &[(f64, f64)]) -> String {
    let most = buckets.iter().map(|(_, count)| *count).fold(0.0, f64::max);
    buckets.iter().map(|(_, count)| bar(*count, most)).collect()
}

/// Formats a bound of the histogram of waits. The bounds are powers of two, in µs.
fn time(seconds: f64) -> String {
    match seconds * 1e6 {
        us if us.is_infinite() => "> 1 s".into(),
        us if us < 1000.0 => format!("< {us:.0} µs"),
        us if us < 1e6 => format!("< {:.0} ms", us / 1e3),
        us => format!("< {:.0} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Choices, Sample,
        trail::Trail,
        view::{Looks, frame},
    };

    fn page(operations: u32, benched: u8) -> Sample {
        Sample::parse(&format!(
            "penstock_engine_info{{engine=\"sw\"}} 1\n\
             penstock_engine_benched {benched}\n\
             penstock_engine_benched_total {benched}\n\
             penstock_engine_operations_total{{class=\"rsa2048\"}} {operations}\n\
             penstock_engine_batches_total{{class=\"rsa2048\"}} {}\n\
             penstock_engine_batch_operations_bucket{{class=\"rsa2048\",le=\"1\"}} 0\n\
             penstock_engine_batch_operations_bucket{{class=\"rsa2048\",le=\"8\"}} {}\n\
             penstock_engine_batch_operations_bucket{{class=\"rsa2048\",le=\"+Inf\"}} {}\n\
             penstock_engine_batch_operations_sum{{class=\"rsa2048\"}} {operations}\n\
             penstock_engine_wait_seconds_bucket{{class=\"rsa2048\",le=\"0.000512\"}} {operations}\n\
             penstock_engine_wait_seconds_bucket{{class=\"rsa2048\",le=\"+Inf\"}} {operations}\n\
             penstock_engine_redone_total{{class=\"rsa2048\"}} {benched}\n\
             penstock_engine_closed_total{{reason=\"full\"}} {operations}\n\
             penstock_engine_turn_seconds_bucket{{le=\"0.0003\"}} {operations}\n\
             penstock_engine_turn_seconds_bucket{{le=\"+Inf\"}} {operations}\n\
             penstock_engine_turn_seconds_max 0.00029\n",
            operations / 8,
            operations / 8,
            operations / 8,
        ))
    }

    fn shown(before: &Sample, now: &Sample) -> Vec<String> {
        at(before, now, 140)
    }

    fn at(before: &Sample, now: &Sample, width: usize) -> Vec<String> {
        let looks = Looks { width, height: 0, styled: false };
        frame("t", (before, now), 2.0, looks, &Choices::default(), &Trail::default())
    }

    #[test]
    fn all_columns_are_there_at_120_and_the_first_ones_at_80() {
        let heads = |width| {
            let lines = at(&page(800, 0), &page(2400, 0), width);
            let head = lines.iter().find(|line| line.starts_with("CLASS")).unwrap().clone();
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
            head.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
        };
        let all = "ops/s batches/s fill of 1-8,9+ inline/s few/s ahead/s wait p50 p99 redone wrong late";
        assert_eq!((heads(120).as_str(), heads(200).as_str()), (all, all));
        assert_eq!(heads(80), "ops/s batches/s fill wait p50 p99 wrong late");
    }

    #[test]
    fn a_class_is_a_row_with_its_fill_and_waits() {
        let lines = shown(&page(800, 0), &page(2400, 0));
        let row = lines.iter().find(|line| line.starts_with("rsa2048")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            words,
            ["rsa2048", "800", "100", "8.0", "█", "0", "0", "0", "<", "512", "µs", "<", "512", "µs", "0", "0", "0"]
        );
        let turns = lines.iter().find(|line| line.contains("turns")).unwrap();
        assert!(turns.contains("800/s") && turns.contains("100.0 % within 300 µs, the longest ever 290 µs"), "{turns}");
        assert!(lines.iter().any(|line| line.contains("closed full 100 %")));
    }

    #[test]
    fn a_device_is_a_line_with_the_depth_of_its_rings() {
        let page = |given: u32, up: u8| {
            Sample::parse(&format!(
                "penstock_engine_info{{engine=\"hw\"}} 1\n\
                 penstock_device_info{{library=\"libqat.so.4\",part=\"4xxx\"}} 1\n\
                 penstock_device_operations_total{{class=\"rsa2048\"}} {given}\n\
                 penstock_device_operations_total{{class=\"x25519-agree\"}} {given}\n\
                 penstock_device_requests 12\n\
                 penstock_device_requests_max 40\n\
                 penstock_device_ring_full_total {given}\n\
                 penstock_device_instance_up{{instance=\"qat0\",node=\"0\"}} 1\n\
                 penstock_device_instance_up{{instance=\"qat1\",node=\"0\"}} {up}\n\
                 penstock_device_instance_requests{{instance=\"qat0\",node=\"0\"}} 9\n\
                 penstock_device_instance_requests{{instance=\"qat1\",node=\"0\"}} 3\n",
            ))
        };
        let line = |up| {
            let lines = shown(&page(100, up), &page(300, up));
            lines.into_iter().find(|line| line.contains("device")).unwrap()
        };
        assert_eq!(
            line(1),
            "  device 4xxx by libqat.so.4   200/s   in progress 12, most 40   rings 9 3   full 100/s   benched 0"
        );
        assert!(line(0).ends_with("   down: qat1"));
    }

    #[test]
    fn a_benched_engine_is_said_first_and_another_program_has_none() {
        let lines = shown(&page(1, 1), &page(1, 1));
        assert!(lines.iter().any(|line| line == "ENGINE sw: benched 1 times, computing natively"), "{lines:#?}");
        let other = Sample::parse("haproxy_process_nbthread 1\n");
        assert!(shown(&other, &other).iter().any(|line| line.contains("not penstock")));
    }
}
