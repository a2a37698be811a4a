//! A study's result for people: a page that stands by itself, the same for a terminal, and in short for a repository.

mod markdown;
mod page;
mod placement;
mod story;
mod text;
mod view;

pub use markdown::markdown;
pub use page::{figure, page};
pub use text::text;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::example;

    #[test]
    fn the_page_stands_by_itself_and_text_cannot_become_markup() {
        let outcome = example(&[
            ("haproxy", 1, 1000.0),
            ("haproxy", 2, 1900.0),
            ("penstock-sw", 1, 3000.0),
            ("penstock-sw", 2, 5800.0),
        ]);
        let page = page(&outcome);
        for absent in ["<script", "http://", "https://", "src=", "<RSA-2048>", "NaN"] {
            assert!(!page.contains(absent), "{absent}");
        }
        assert!(page.matches("<svg").count() >= 5, "bars, both axes logarithmic, latency, places");
        for present in
            ["&lt;RSA-2048&gt;", "Xeon &amp; friends", "nginx is not installed", "Nothing seen that speaks against it"]
        {
            assert!(page.contains(present), "{present}");
        }
    }

    #[test]
    fn the_first_sentence_is_the_answer() {
        let text = text(&example(&[("haproxy", 1, 1000.0), ("penstock-sw", 1, 3000.0)]));
        assert!(
            text.contains(
                "penstock-sw does 3.00 (3.00-3.00) times the requests at 0.33 (0.33-0.33) of the CPU time each"
            ),
            "{text}"
        );
        assert!(!text.contains("  work  "), "one kind of work needs no column: {text}");
    }

    #[test]
    fn what_is_partial_says_so_first() {
        let mut outcome = example(&[("haproxy", 1, 1000.0)]);
        outcome.partial.push("it was stopped by hand".into());
        assert!(text(&outcome).contains("PARTIAL: it was stopped by hand"));
        let page = page(&outcome);
        assert!(page.find("This result is partial") < page.find("What was found"));
    }

    #[test]
    fn nothing_measured_is_drawn_without_a_fault() {
        let mut outcome = example(&[("haproxy", 1, 1000.0)]);
        outcome.cells[0].windows.clear();
        assert!(page(&outcome).contains("Nothing was measured"));
        outcome.cells.clear();
        assert!(text(&outcome).contains("Nothing was measured"));
    }
}
