//! The page around the figures.

/// Text into markup.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A whole page from the markup of its header and its body, with style beyond that of tables and figures.
pub fn page(title: &str, style: &str, header: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, \
         initial-scale=1\"><link rel=\"icon\" href=\"data:,\"><title>{}</title><style>{}{style}</style></head><body><header>{header}</header><main>\
         {body}</main></body></html>\n",
        escaped(title),
        include_str!("style.css"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escaped("<a b=\"c\">&"), "&lt;a b=&quot;c&quot;&gt;&amp;");
        assert!(page("<x>", "", "", "").contains("<title>&lt;x&gt;</title>"));
    }
}
