//! Which crypto engine the configuration asks for, and which one this build has.

use penstock_config::{Diagnostics, model::CryptoSettings};

/// Checks the settings; whatever they prefer, `native` computes until another engine is built in.
pub fn check(settings: &CryptoSettings, diagnostics: &mut Diagnostics) {
    if let Some(engine) = &settings.engine {
        let name = engine.value.as_str();
        if !["native", "auto"].contains(&name) {
            diagnostics
                .warning(engine.span, format!("the engine '{name}' is not part of this release: 'native' computes"))
                .hint("write 'native' or 'auto'");
        }
    }
    if let Some(asked) = settings.ssl_engine.as_ref().or(settings.ssl_provider.as_ref()) {
        let name = &asked.value;
        let synchronous =
            if settings.ssl_mode_async { "" } else { "; without 'ssl-mode-async' it would not wait either" };
        diagnostics.notice(
            asked.span,
            format!("'{name}' stands for the engine 'hw+sw', which is not part of this release: 'native' computes{synchronous}"),
        );
    }
    if let Some(algo) = &settings.ssl_engine_algo {
        diagnostics.notice(
            algo.span,
            "records, key derivation and hashes always stay with aws-lc; 'algo' concerns public-key operations only",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_config::Env;

    fn findings(global: &str) -> String {
        let source = penstock_config::Source { name: "t.cfg".into(), text: format!("global\n  {global}\n") };
        let (config, mut diagnostics) = penstock_config::load([source], &Env::default());
        check(&config.global.crypto, &mut diagnostics);
        diagnostics.list.iter().map(|d| format!("{:?}: {}\n", d.severity, d.message)).collect()
    }

    #[test]
    fn what_this_build_lacks_is_said() {
        assert_eq!(findings("tune.crypto.engine auto"), "");
        let sw = findings("tune.crypto.engine sw");
        assert!(sw.starts_with("Warning: the engine 'sw' is not part"), "{sw}");
        let papers = findings("ssl-engine qatengine algo ALL\n  ssl-mode-async");
        assert!(papers.contains("stands for the engine 'hw+sw'") && papers.contains("'algo' concerns"), "{papers}");
        assert!(!papers.contains("Error"));
    }
}
