//! Formats answers for a terminal: lists with a header line become tables.

use std::io::IsTerminal;

/// The columns of `show stat` that people look at, as many as fit; the full table is for programs.
const STAT: [&str; 20] = [
    "# pxname",
    "svname",
    "status",
    "weight",
    "scur",
    "smax",
    "slim",
    "stot",
    "rate",
    "qcur",
    "bin",
    "bout",
    "req_tot",
    "hrsp_2xx",
    "hrsp_4xx",
    "hrsp_5xx",
    "econ",
    "eresp",
    "check_status",
    "lastchg",
];

/// The width of the terminal, if standard output is one.
pub fn width() -> Option<usize> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// The text with a line end; as a table if it is one and the terminal has that width.
pub fn arranged(text: &str, width: Option<usize>) -> String {
    let as_it_was = || format!("{text}\n");
    let Some(width) = width else { return as_it_was() };
    // The first line of `show servers state` is the version of its format.
    let body = text.strip_prefix("1\n").unwrap_or(text);
    if !body.starts_with("# ") {
        return as_it_was();
    }
    let (head, rows) = body.split_once('\n').unwrap_or((body, ""));
    let is_csv = head.contains(",svname,");
    let cells = |line: &str| -> Vec<String> {
        if is_csv { csv(line) } else { line.trim_start_matches("# ").split_whitespace().map(str::to_owned).collect() }
    };
    let head = cells(head);
    let rows: Vec<Vec<String>> = rows.lines().map(cells).collect();
    if !is_csv && rows.iter().any(|row| row.len() > head.len()) {
        return as_it_was();
    }
    let chosen: Vec<usize> = if is_csv {
        STAT.iter().filter_map(|name| head.iter().position(|here| here == name)).collect()
    } else {
        (0..head.len()).collect()
    };
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let lines = || std::iter::once(&head).chain(&rows);
    let mut columns: Vec<(usize, usize)> =
        chosen.into_iter().map(|c| (c, lines().map(|row| cell(row, c).chars().count()).max().unwrap_or(0))).collect();
    let total = |columns: &[(usize, usize)]| columns.iter().map(|(_, width)| width + 2).sum::<usize>();
    if is_csv {
        while columns.len() > 2 && total(&columns) > width + 2 {
            columns.pop();
        }
    } else if total(&columns) > width + 2 {
        return as_it_was();
    }
    let mut out = String::new();
    for row in lines() {
        let mut line = String::new();
        for &(column, width) in &columns {
            let text = cell(row, column);
            let text = text.trim_start_matches("# ");
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            line += &if is_number { format!("{text:>width$}  ") } else { format!("{text:<width$}  ") };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Splits a CSV line.
fn csv(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("there is always one").push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str = "# pxname,svname,qcur,scur,stot,status,\nfront,FRONTEND,,3,12000,OPEN,\nb,\"a,b\",0,1,7,UP 1/2,";

    #[test]
    fn a_list_becomes_a_table_as_wide_as_the_terminal() {
        let wide = arranged(CSV, Some(100));
        assert_eq!(
            wide,
            "pxname    svname    status  scur  stot   qcur\nfront     FRONTEND  OPEN       3  12000\n\
             b         a,b       UP 1/2     1      7     0\n"
        );
        assert_eq!(arranged(CSV, Some(30)).lines().next(), Some("pxname    svname    status"));
        assert_eq!(arranged(CSV, None), format!("{CSV}\n"), "a program gets what was sent");
        assert_eq!(arranged("# name\nb", Some(80)), "name\nb\n");
        assert_eq!(arranged("Name: x", Some(80)), "Name: x\n");
    }
}
