//! `{{...}}` in a scenario: addresses, files and programs that differ from run to run.

use crate::Failure;

/// Replaces every `{{name}}` by what `lookup` gives for it.
pub fn substitute(text: &str, lookup: &mut dyn FnMut(&str) -> Result<String, Failure>) -> Result<String, Failure> {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let Some(length) = rest[start..].find("}}") else { return Err(format!("{{{{ without }}}}: {rest}")) };
        done.push_str(&rest[..start]);
        done.push_str(&lookup(rest[start + 2..start + length].trim())?);
        rest = &rest[start + length + 2..];
    }
    done.push_str(rest);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_looked_up_once_where_it_stands() {
        let mut asked = Vec::new();
        let text = substitute("bind {{bind a}} ${HOME} {{ x }}", &mut |name| {
            asked.push(name.to_owned());
            Ok(format!("<{name}>"))
        });
        assert_eq!(text.as_deref(), Ok("bind <bind a> ${HOME} <x>"));
        assert_eq!(asked, ["bind a", "x"]);
        assert!(substitute("{{open", &mut |_| Ok(String::new())).is_err());
    }
}
