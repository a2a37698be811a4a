//! What is evaluated once, before there is a connection: `set-var` and `set-var-fmt` of the global section.

use crate::{
    Buffered, Compiler, ConnFacts, Context, Kind, LogFacts, Now, Phase, Places, ProxyFacts, Session, Txn, VarRef,
    Variables, World,
    acl::Acls,
    action::{Build, Captures},
    link::Scope,
    words::Words,
};
use penstock_config::{Line, model::ProxyId};

impl Compiler<'_> {
    /// Sets the variables of the process as the global section says, line by line, so that a line may use what earlier
    /// ones have set.
    pub fn set_variables(&mut self, lines: &[Line], now: Now, world: &dyn World) {
        for line in lines {
            self.set_variable(line, now, world);
        }
    }

    /// Shares the variables of the process with those who compiled before: an expression finds their values, and sets them.
    pub fn share_variables(&mut self, known: &Variables) {
        for (name, var) in known.all() {
            // Numbers are this compiler's own; of a variable of the process only where it lives counts.
            let id = self.parts().0.vars.len() as u32;
            self.parts().0.vars.insert(name, VarRef { id, ..var });
        }
    }

    /// Tells of the variables of the process that were named since.
    pub fn tell_variables(&mut self, known: &Variables) {
        known.add(self.parts().0.vars.iter().map(|(name, var)| (name.clone(), var.clone())));
    }

    fn set_variable(&mut self, line: &Line, now: Now, world: &dyn World) -> Option<()> {
        let mut words = Words::new(line);
        let (keyword, name) = (words.next()?, words.next()?);
        let (linker, diagnostics) = self.parts();
        let mut build = Build {
            linker,
            diagnostics,
            acls: &mut Acls::default(),
            scope: Scope { proxy: None, place: Places::CONFIG },
            kind: Kind::Check,
            captures: &mut Captures::default(),
            realm: "",
            words,
            word: name,
            inside: &name.text,
        };
        let action = match keyword.text.as_str() {
            "set-var-fmt" => build.set_var_fmt()?,
            _ => build.set_var()?,
        };
        if let Some(word) = build.words.peek() {
            let message =
                format!("'{}' and everything after it is ignored: '{}' is complete before it", word.text, keyword.text);
            build.diagnostics.warning(word.span, message);
        }
        let mut context = Context {
            now,
            phase: Phase::Before,
            conn: &ConnFacts::default(),
            frontend: (ProxyId(0), &ProxyFacts::default()),
            backend: None,
            server: None,
            server_conn: None,
            request: None,
            response: None,
            input: Buffered::default(),
            output: Buffered::default(),
            session: &mut Session::default(),
            txn: &mut Txn::default(),
            log: &LogFacts::default(),
            world,
        };
        // Without a value, the variable stays as it is.
        let _ = action.run(Kind::Check, line.span, &mut context, 0);
        context.settle();
        Some(())
    }
}
