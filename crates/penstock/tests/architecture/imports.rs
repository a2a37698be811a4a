//! Which module of a crate imports which, read from the syntax trees of its sources, and the circles that come of it.
//!
//! A module is a file: modules written inside one belong to it, and what only tests compile is left out. A path counts where
//! it leads, through re-exports: who imports `crate::Name` depends on the module that defines `Name`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};
use syn::visit::Visit;

/// A module's path below the crate's root, which is empty.
type Module = Vec<String>;

/// Imports: from a module to the other modules of its crate that it names.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// The imports of the crate whose sources are in that folder.
pub fn of_folder(folder: &Path) -> Imports {
    let mut sources = Vec::new();
    read(folder, folder, &mut sources);
    of_sources(&sources)
}

fn read(root: &Path, folder: &Path, sources: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(root, &path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            sources.push((path.strip_prefix(root).unwrap().to_owned(), text));
        }
    }
}

/// The imports of a crate of these files, whose paths are relative to its `src`.
pub fn of_sources(sources: &[(PathBuf, String)]) -> Imports {
    let mut found = Crate::default();
    for (path, text) in sources {
        let file = syn::parse_file(text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let module = module_of(path);
        found.files.insert(module.clone());
        found.collect(&module, &module, &file.items);
    }
    let tests = found.tests.clone();
    let is_test = |module: &Module| tests.iter().any(|test| module.starts_with(test));
    let mut imports = Imports::new();
    for file in found.files.iter().filter(|file| !is_test(file)) {
        let named = found.paths.get(file).into_iter().flatten();
        let leads =
            named.filter_map(|(scope, path)| found.resolve(scope, path, 0)).map(|module| found.file_of(&module));
        let others = leads.filter(|to| to != file && !is_test(to)).map(|to| name_of(&to)).collect();
        imports.insert(name_of(file), others);
    }
    imports
}

/// The largest set of modules each of which depends on every other, over however many steps; sorted.
pub fn largest_circle(imports: &Imports) -> Vec<&str> {
    let reachable: HashMap<&str, BTreeSet<&str>> =
        imports.keys().map(|from| (from.as_str(), reach(imports, from))).collect();
    let circle = |module: &str| -> Vec<&str> {
        let back = |other: &&str| reachable.get(*other).is_some_and(|from| from.contains(module));
        reachable[module].iter().copied().filter(back).collect()
    };
    imports.keys().map(|module| circle(module)).max_by_key(Vec::len).unwrap_or_default()
}

/// What can be reached from a module in one step or more.
fn reach<'a>(imports: &'a Imports, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut ahead: Vec<&str> = imports[from].iter().map(String::as_str).collect();
    while let Some(module) = ahead.pop() {
        if seen.insert(module) {
            ahead.extend(imports.get(module).into_iter().flatten().map(String::as_str));
        }
    }
    seen
}

fn name_of(module: &Module) -> String {
    if module.is_empty() { "crate".into() } else { module.join("::") }
}

/// `a/b.rs` and `a/b/mod.rs` are `a::b`; `lib.rs` and `main.rs` are the root.
fn module_of(path: &Path) -> Module {
    let mut module: Module = path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if module.len() == 1 && matches!(module[0].as_str(), "lib" | "main") || module.last().is_some_and(|l| l == "mod") {
        module.pop();
    }
    module
}

/// What a name in a module is another name for.
#[derive(Clone)]
struct Alias {
    name: String,
    path: Vec<String>,
    /// Other modules may use it.
    shown: bool,
}

#[derive(Default)]
struct Crate {
    files: BTreeSet<Module>,
    /// Every module, those inside files too, with the names that it defines.
    defined: BTreeMap<Module, BTreeSet<String>>,
    aliases: BTreeMap<Module, Vec<Alias>>,
    /// What modules import all of.
    globs: BTreeMap<Module, Vec<Vec<String>>>,
    /// Modules that only tests compile.
    tests: BTreeSet<Module>,
    /// By file: every path in it, with the module whose names it begins with.
    paths: BTreeMap<Module, Vec<(Module, Vec<String>)>>,
}

impl Crate {
    /// Takes in the items of a module in that file.
    fn collect(&mut self, file: &Module, module: &Module, items: &[syn::Item]) {
        self.defined.entry(module.clone()).or_default();
        for item in items {
            let test = attributes(item).iter().any(is_for_tests);
            match item {
                syn::Item::Mod(inner) => {
                    let mut below = module.clone();
                    below.push(inner.ident.to_string());
                    match &inner.content {
                        _ if test => drop(self.tests.insert(below)),
                        Some((_, items)) => self.collect(file, &below, items),
                        None => {}
                    }
                }
                _ if test => {}
                syn::Item::Use(import) => {
                    let mut names = Vec::new();
                    flatten(&import.tree, &mut Vec::new(), &mut names);
                    for (path, name) in names {
                        match name {
                            None => self.globs.entry(module.clone()).or_default().push(path.clone()),
                            Some(name) => {
                                let shown = !matches!(import.vis, syn::Visibility::Inherited);
                                let alias = Alias { name, path: path.clone(), shown };
                                self.aliases.entry(module.clone()).or_default().push(alias);
                            }
                        }
                        self.paths.entry(file.clone()).or_default().push((module.clone(), path));
                    }
                }
                other => {
                    if let Some(name) = defines(other) {
                        self.defined.get_mut(module).expect("just made").insert(name);
                    }
                    let mut paths = Paths::default();
                    paths.visit_item(other);
                    let found = paths.0.into_iter().map(|path| (module.clone(), path));
                    self.paths.entry(file.clone()).or_default().extend(found);
                }
            }
        }
    }

    /// The module that a path leads to, from a module whose names it may begin with; `None` where it leaves the crate.
    fn resolve(&self, scope: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = (scope.clone(), path);
        let mut anchored = false;
        while let Some(first) = rest.first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ => break,
            }
            (anchored, rest) = (true, &rest[1..]);
        }
        if !anchored && !self.knows(&at, rest.first()?) {
            return None;
        }
        self.descend(at, rest, depth)
    }

    /// Follows names downwards from a module.
    fn descend(&self, mut at: Module, mut rest: &[String], depth: usize) -> Option<Module> {
        // Names that stand for each other in a ring would not compile.
        if depth > 64 {
            return Some(at);
        }
        while let Some(name) = rest.first() {
            let mut below = at.clone();
            below.push(name.clone());
            if self.defined.contains_key(&below) || self.tests.contains(&below) {
                (at, rest) = (below, &rest[1..]);
                continue;
            }
            if self.defined.get(&at).is_some_and(|names| names.contains(name)) {
                return Some(at);
            }
            if let Some(alias) = self.aliases.get(&at).and_then(|all| all.iter().find(|alias| alias.name == *name)) {
                let whole: Vec<String> = alias.path.iter().chain(&rest[1..]).cloned().collect();
                return self.resolve(&at, &whole, depth + 1);
            }
            let globs = self.globs.get(&at).into_iter().flatten();
            let behind = globs.filter_map(|glob| self.resolve(&at, glob, depth + 1)).filter(|to| *to != at);
            let mut behind = behind.filter(|to| self.shows(to, name));
            return match behind.next() {
                Some(to) => self.descend(to, rest, depth + 1),
                None => Some(at),
            };
        }
        Some(at)
    }

    /// Whether a path in a module may begin with that name, apart from what globs bring. A crate's own name may not: an alias of
    /// the same name leads out.
    fn knows(&self, module: &Module, name: &str) -> bool {
        self.has(module, name, |alias| alias.path[0] != name)
    }

    /// Whether a module has that name for others.
    fn shows(&self, module: &Module, name: &str) -> bool {
        self.has(module, name, |alias| alias.shown)
    }

    fn has(&self, module: &Module, name: &str, counts: impl Fn(&Alias) -> bool) -> bool {
        let mut below = module.clone();
        below.push(name.to_owned());
        self.defined.contains_key(&below)
            || self.defined.get(module).is_some_and(|names| names.contains(name))
            || self.aliases.get(module).into_iter().flatten().any(|alias| alias.name == name && counts(alias))
    }

    /// The file that a module stands in.
    fn file_of(&self, module: &Module) -> Module {
        let mut file = module.clone();
        while !self.files.contains(&file) && !file.is_empty() {
            file.pop();
        }
        file
    }
}

/// The names that a use tree brings, each with its whole path; `None` is everything.
fn flatten(tree: &syn::UseTree, before: &mut Vec<String>, names: &mut Vec<(Vec<String>, Option<String>)>) {
    let whole = |before: &[String], last: String| before.iter().cloned().chain([last]).collect::<Vec<_>>();
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, names);
            before.pop();
        }
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, names)),
        syn::UseTree::Glob(_) => names.push((before.clone(), None)),
        syn::UseTree::Name(name) if name.ident == "self" => {
            names.push((before.clone(), before.last().cloned()));
        }
        syn::UseTree::Name(name) => {
            let name = name.ident.to_string();
            names.push((whole(before, name.clone()), Some(name)));
        }
        syn::UseTree::Rename(rename) => {
            let path = if rename.ident == "self" { before.clone() } else { whole(before, rename.ident.to_string()) };
            names.push((path, Some(rename.rename.to_string())));
        }
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]`, alone or as one of `all(...)`.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let text = list.tokens.to_string();
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    list.path.is_ident("cfg") && words.contains(&"test") && !words.contains(&"not") && !words.contains(&"any")
}

fn defines(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Every path of two segments or more in an item, those in the arguments of macros and in `use` inside functions too.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }
    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        let mut names = Vec::new();
        flatten(&import.tree, &mut Vec::new(), &mut names);
        self.0.extend(names.into_iter().map(|(path, _)| path));
    }
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(in a::b)` names whom it is shown to.
    }
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        syn::visit::visit_macro(self, call);
    }
    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        if let syn::Stmt::Item(item) = statement
            && attributes(item).iter().any(is_for_tests)
        {
            return;
        }
        syn::visit::visit_stmt(self, statement);
    }
    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if !block.attrs.iter().any(is_for_tests) {
            syn::visit::visit_expr_block(self, block);
        }
    }
}

impl Paths {
    /// Words joined by `::` in what a macro is given, whose syntax is its own.
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        use proc_macro2::TokenTree;
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.keep(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.keep(&mut path);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.keep(&mut path);
    }
    fn keep(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.0.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        of_sources(&files.iter().map(|(path, text)| ((*path).into(), (*text).to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn a_planted_circle_is_found_however_its_imports_are_written() {
        let ring = imports(&[
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e; pub use e::Last;"),
            ("a.rs", "use crate::b::{self, deep::{X as Y, Z}}; fn f() { b::g() }"),
            ("b.rs", "pub mod deep; pub fn g() { super::c::h() }"),
            ("b/deep.rs", "pub struct X; pub struct Z; impl super::super::b::T for X {}"),
            ("c.rs", "pub fn h() { println!(\"{}\", format_args!(\"{}\", crate::d::VALUE)); }"),
            ("d.rs", "pub const VALUE: crate::Last = crate::Last; mod inner { use super::super::e; }"),
            ("e.rs", "pub struct Last; fn back() { use crate::a::{f}; f() }"),
            ("apart.rs", "use crate::a; use std::io; use h2::Reason;"),
        ]);
        assert_eq!(largest_circle(&ring), ["a", "b", "b::deep", "c", "d", "e"], "{ring:?}");
        assert_eq!(ring["crate"], BTreeSet::from(["e".to_owned()]));
        assert_eq!(ring["apart"], BTreeSet::from(["a".to_owned()]));
    }

    #[test]
    fn tests_strings_comments_and_other_crates_are_no_imports() {
        let none = imports(&[
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod only;"),
            ("a.rs", "use crate::b::X; /* crate::b */ #[cfg(test)] mod tests { use super::*; use crate::only; }"),
            (
                "b.rs",
                "// crate::a\nconst S: &str = \"crate::a\"; pub struct X; #[cfg(test)] use crate::a; #[cfg(test)] mod tests;",
            ),
            ("b/tests.rs", "use super::*; use crate::a::*;"),
            ("only.rs", "use crate::a::*; use crate::b::*;"),
        ]);
        assert_eq!(largest_circle(&none), [""; 0], "{none:?}");
        assert_eq!(none["a"], BTreeSet::from(["b".to_owned()]));
        assert!(none["b"].is_empty() && !none.contains_key("only") && !none.contains_key("b::tests"), "{none:?}");
    }

    #[test]
    fn names_are_followed_to_where_they_are_defined() {
        let found = imports(&[
            ("lib.rs", "mod a; pub use a::{Thing, inner::*}; mod user;"),
            ("a/mod.rs", "pub mod inner; pub use inner::Other as Thing;"),
            ("a/inner.rs", "pub struct Other; pub struct Globbed;"),
            ("user.rs", "use crate::{Globbed, Thing}; fn f(_: Thing) {}"),
        ]);
        assert_eq!(found["user"], BTreeSet::from(["a::inner".to_owned()]), "{found:?}");
        assert_eq!(found["a"], BTreeSet::from(["a::inner".to_owned()]));
        assert_eq!(largest_circle(&found), [""; 0]);
    }
}
