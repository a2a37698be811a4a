//! Published figures in a browser as wide as a phone.

mod common;

use common::{Place, browser::Browser};

#[test]
fn words_in_figures_can_be_read_on_a_phone() {
    let place = Place::new("figures-browser");
    let Some(mut browser) = Browser::start(&place, "published figures") else { return };
    for study in ["handshake", "core-scaling", "throughput"] {
        let page = format!("file://{}/../../docs/measurements/{study}/report.html", env!("CARGO_MANIFEST_DIR"));
        browser.open(&page, 420, false);
        let count = browser.value("document.querySelectorAll('svg text').length");
        assert!(count.as_u64() > Some(10), "{study}: {count}");
        // How high a letter is on the screen: the size in the figure's own units, and how much it is scaled.
        let small = "[...document.querySelectorAll('svg text')].filter(text => { const svg = text.ownerSVGElement; const scale = \
                     svg.getBoundingClientRect().width / svg.viewBox.baseVal.width; return parseFloat(getComputedStyle(text).fontSize) * scale < 10.9; \
                     }).map(text => text.outerHTML)";
        assert_eq!(browser.value(small), serde_json::json!([]), "{study}");
        assert_eq!(browser.value("document.documentElement.scrollWidth <= innerWidth"), true, "{study} sticks out");
        browser.picture(&format!("study-{study}-420"));
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}
