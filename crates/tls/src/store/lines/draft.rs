//! Changes to lines that are prepared first, since they may fail, and then applied in one step.

use super::{Builder, Shapes};
use crate::{
    certificate::Certificate,
    context::{Context, Table},
    forge::Forge,
    loader::Folders,
    store::{Settings, State, complaint},
};
use penstock_config::{Diagnostics, model::TlsConf};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// The next state of some lines, before it is applied.
#[derive(Default)]
pub(in crate::store) struct Draft {
    tables: BTreeMap<usize, Table>,
    contexts: Vec<(usize, u64, Arc<Context>)>,
    shapes: Vec<(usize, Shapes)>,
}

impl Draft {
    /// How many certificates of lines it replaces.
    pub fn len(&self) -> usize {
        self.contexts.len()
    }
}

impl State {
    /// Drafts the lines with another certificate under this name.
    pub fn draft_certificate(&self, name: &str, certificate: &Arc<Certificate>) -> Draft {
        let mut draft = Draft::default();
        let Some(slot) = self.certificates.get(name) else { return draft };
        for (index, order) in &slot.instances {
            let line = &self.lines[*index];
            let Some(instance) = line.instances.get(order) else { continue };
            let table = draft.tables.entry(*index).or_insert_with(|| Table::clone(&line.live.load()));
            let old = &instance.context;
            let next = Context::new(*order, certificate.clone(), old.shape.clone(), instance.excluded.clone());
            let next = Arc::new(next);
            instance.patterns().iter().for_each(|pattern| table.names.remove(pattern, *order));
            let names = &certificate.names;
            instance.patterns_for(names).iter().for_each(|pattern| table.names.add(pattern, &next));
            draft.contexts.push((*index, *order, next));
        }
        draft
    }

    /// Applies the draft to its lines; each line changes in one step.
    pub fn apply(&mut self, draft: Draft) {
        let Draft { tables, contexts, shapes } = draft;
        let mut touched = BTreeMap::new();
        for (index, order, context) in contexts {
            if let Some(instance) = self.lines[index].instances.get_mut(&order) {
                let names_before = std::mem::replace(&mut instance.context, context);
                touched.entry(index).or_insert_with(Vec::new).push((order, names_before));
            }
        }
        for (index, shapes) in shapes {
            self.lines[index].shapes = shapes;
        }
        for (index, mut table) in tables {
            let line = &self.lines[index];
            let changed = touched.remove(&index).unwrap_or_default();
            if line.defaults_follow(&table, &changed) {
                table.defaults = line.defaults();
            }
            line.publish(table);
        }
    }

    /// Makes lines verify clients by the current contents of those files for which `concerned` holds.
    ///
    /// # Errors
    ///
    /// What is wrong with them, as a sentence; nothing has changed.
    pub fn draft_authorities(
        &mut self,
        settings: &Settings,
        concerned: impl Fn(&TlsConf) -> bool,
    ) -> Result<Draft, String> {
        let mut draft = Draft::default();
        let lines = std::mem::take(&mut self.lines);
        let mut failure = None;
        for (index, line) in lines.iter().enumerate() {
            if !line.shapes.iter().any(|(conf, _)| concerned(conf)) {
                continue;
            }
            let mut diagnostics = Diagnostics::default();
            let nothing = crate::Memory::default();
            let mut builder = Builder {
                settings,
                state: &mut *self,
                loader: &nothing,
                diagnostics: &mut diagnostics,
                read: HashMap::new(),
                folders: Folders::default(),
            };
            let renewed = line.shapes.iter().map(|(conf, shape)| {
                let shape =
                    if concerned(conf) { Arc::new(builder.new_shape(line, conf, line.span)?) } else { shape.clone() };
                Some((conf.clone(), shape))
            });
            let Some(shapes) = renewed.collect::<Option<Vec<_>>>() else {
                failure = complaint(&diagnostics);
                break;
            };
            // What was made for clients under the previous settings is not presented again.
            let own = shapes.iter().find(|(conf, _)| *conf == line.tls.conf).map(|(_, shape)| shape);
            let renewed = |forge: &Option<Arc<Forge>>, is_untrusted| {
                let forge = forge.as_ref()?;
                Some(own.map_or(forge.clone(), |shape| forge.renewed(shape, is_untrusted)))
            };
            let before = line.live.load();
            let (forge, untrusted) = (renewed(&before.forge, false), renewed(&before.untrusted, true));
            let mut table = Table { forge, untrusted, ..Table::default() };
            for (order, instance) in &line.instances {
                let shape = shapes.iter().find(|(conf, _)| *conf == instance.conf).map(|(_, shape)| shape.clone());
                let shape = shape.unwrap_or_else(|| instance.context.shape.clone());
                let certificate = instance.context.certificate.clone();
                let next = Arc::new(Context::new(*order, certificate, shape, instance.excluded.clone()));
                for pattern in instance.patterns() {
                    table.names.add(&pattern, &next);
                }
                draft.contexts.push((index, *order, next));
            }
            draft.tables.insert(index, table);
            draft.shapes.push((index, shapes));
        }
        self.lines = lines;
        match failure {
            Some(failure) => Err(failure),
            None => Ok(draft),
        }
    }
}
