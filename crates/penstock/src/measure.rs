//! `penstock plan --measure`: what this machine can do, and what would improve it.

use crate::{arguments::Arguments, engine, plan::on_terminal};
use penstock_doctor::{
    Host,
    measure::{TIME_MAX, TIME_MIN, Wish, measure},
};
use penstock_planner::{
    Inputs, Rates,
    render::answers::{json, text},
    whatif::{Question, answers},
};
use std::{io::Write, time::Duration};

/// The default duration.
const TIME: Duration = Duration::from_secs(3);

/// Measures and shows the result; returns the rates if levels are to be planned with them.
///
/// # Errors
///
/// A sentence: the options make no sense, or the certificate cannot be used.
pub fn run(arguments: &Arguments, inputs: &mut Inputs) -> Result<Option<Rates>, String> {
    for option in ["--published", "--study", "--native", "--sw", "--hw"] {
        if arguments.has(option) {
            return Err(format!("--measure finds the rates itself: leave {option} out"));
        }
    }
    let question = question(arguments, inputs)?;
    let wish = wish(arguments)?;
    let plans = arguments.has("--level");
    let for_people = !arguments.has("--json") && !arguments.has("--csv") && !arguments.has("--html");
    if for_people && on_terminal() {
        eprintln!("Measuring for {:.0} s on every processor...", wish.time.as_secs_f64());
    }
    let measured = measure(&wish, &Host::at("/"))?;
    let answers = answers(&measured, &question);
    let study = json(&measured, &answers);
    if !plans || for_people {
        let out = if for_people { text(&measured, &answers, &question, on_terminal()) } else { format!("{study:#}\n") };
        // A reader that has seen enough closes the pipe.
        let _ = std::io::stdout().write_all(out.as_bytes());
    }
    if !plans {
        return Ok(None);
    }
    if !arguments.has("--cores-per-server") {
        inputs.set("cores-per-server", &measured.processors.to_string()).map_err(|e| e.to_string())?;
    }
    if !arguments.has("--core-step") {
        inputs.set("core-step", "1").map_err(|e| e.to_string())?;
    }
    if for_people {
        println!();
    }
    Ok(Some(Rates::from_study(&study.to_string()).map_err(|e| e.to_string())?))
}

fn question(arguments: &Arguments, inputs: &Inputs) -> Result<Question, String> {
    let mut question = Question { max_utilisation: inputs.max_utilisation, ..Question::default() };
    for (name, field) in [
        ("--resumption", &mut question.resumption as &mut f64),
        ("--cards", &mut question.cards),
        ("--device-peak", &mut question.card_peak),
        ("--submit-us", &mut question.submit_us),
    ] {
        if let Some(typed) = arguments.one(name) {
            let (digits, factor) = typed.strip_suffix('%').map_or((typed, 1.0), |digits| (digits, 0.01));
            let number = digits.parse::<f64>().ok();
            *field = number.ok_or_else(|| format!("{name} cannot be '{typed}': expected a number"))? * factor;
        }
    }
    question.check().map_err(|e| e.to_string())?;
    Ok(question)
}

fn wish(arguments: &Arguments) -> Result<Wish, String> {
    let read = |file: &str| std::fs::read(file).map_err(|e| format!("cannot read {file}: {e}"));
    let time = match arguments.one("--seconds") {
        None => TIME,
        Some(text) => {
            let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let time = time.filter(|time| (TIME_MIN..=TIME_MAX).contains(time));
            time.ok_or_else(|| {
                format!("--seconds cannot be '{text}': expected {} to {}", TIME_MIN.as_secs_f64(), TIME_MAX.as_secs())
            })?
        }
    };
    let tls12 = match arguments.one("--tls") {
        None | Some("1.3") => false,
        Some("1.2") => true,
        Some(text) => return Err(format!("--tls cannot be '{text}': expected 1.2 or 1.3")),
    };
    let certificate = arguments.one("--crt").map(|file| Ok::<_, String>((file.to_owned(), read(file)?))).transpose()?;
    let key = arguments.one("--key").map(read).transpose()?;
    if key.is_some() && certificate.is_none() {
        return Err("--key needs --crt".into());
    }
    Ok(Wish { certificate, key, tls12, lanes: engine::lanes(), time })
}
