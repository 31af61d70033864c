//! What a reload would do.

use super::difference::{self, Difference};
use super::slow::Step;
use super::wanted::{Configuration, Wanted};
use super::{Answer, Manager};
use crate::counting::User;

impl Manager {
    /// Tells what a reload would do, and does nothing.
    pub(super) fn compare(&self, resets: bool) -> Step {
        self.read_configuration(resets, move |manager, configured| {
            manager.wanted(configured.clone()).config.terms().check()?;
            let wanted = configured.clone();
            let find = move |manager: &Manager, users: &[User]| manager.taken_by(&wanted, users);
            Ok(Step::seen_twice(manager, find, move |manager, taken| {
                Ok(Step::Done(Answer::Changed(manager.would(configured, taken))))
            }))
        })
    }

    /// What this configuration would change, a line for each thing.
    fn would(&self, configured: Configuration, taken: Vec<String>) -> Vec<String> {
        let resets = configured.resets;
        let Wanted { config: wanted, missing, notes, .. } = self.wanted(configured);
        let difference = Difference::between(self.volumes.values(), &wanted.volumes);
        let exports = difference::of_exports(&self.target.exports(), &wanted.exports);
        let mut lines: Vec<String> = difference.would().collect();
        lines.extend(missing.iter().map(|volume| format!("volume {} would be sought again", volume.spec.name)));
        lines.extend(exports.into_iter().map(|line| format!("would be: {line}")));
        lines.extend(notes);
        if resets {
            let renumbered = self.renumbered(&wanted.volumes);
            lines.extend(renumbered.map(|(lun, name)| format!("volume {name} would be logical unit {lun}")));
            lines.extend(self.would_forget());
        }
        lines.extend(taken.into_iter().map(|line| format!("{line}: a reload is refused without --force")));
        lines
    }
}
