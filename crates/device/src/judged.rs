//! What programs have said of a command, for as long as that is under way.

use std::sync::Arc;

use sanwire_scsi::Cdb;

use crate::command_program::{CommandProgram, Judgement, Keeping};

/// What programs have said of a command that may be executed, as far as it must be kept.
#[derive(Default, Debug)]
pub(crate) struct Judged {
    /// What is executed, if that is not what its initiator has given.
    pub(crate) cdb: Option<Cdb>,
    /// What must be durable before its store begins.
    wishes: Wishes,
    ends: Vec<End>,
}

/// A program that wants to hear how a command ends.
#[derive(Debug)]
struct End {
    program: Arc<dyn CommandProgram>,
    token: u64,
}

/// What programs want to have durable before something goes on.
#[derive(Default, Debug)]
pub(crate) struct Wishes(Vec<(Arc<dyn CommandProgram>, u64)>);

impl Wishes {
    fn add(&mut self, program: &Arc<dyn CommandProgram>, wish: Option<u64>) {
        self.0.extend(wish.map(|wish| (Arc::clone(program), wish)));
    }

    /// What has become of all of them together. Those that are durable are not asked about again.
    pub(crate) fn keeping(&mut self) -> Keeping {
        let mut has_failed = false;
        self.0.retain(|(program, wish)| match program.keeping(*wish) {
            Keeping::Kept => false,
            Keeping::Pending => true,
            Keeping::Failed => {
                has_failed = true;
                true
            }
        });
        match () {
            () if has_failed => Keeping::Failed,
            () if self.0.is_empty() => Keeping::Kept,
            () => Keeping::Pending,
        }
    }
}

impl Judged {
    /// A program has judged so. Nearly always there is nothing to keep of that, and then nothing is made for it.
    pub(crate) fn note(judged: &mut Option<Box<Judged>>, program: &Arc<dyn CommandProgram>, judgement: &Judgement) {
        if judgement.keep.is_none() && judgement.end.is_none() {
            return;
        }
        let judged = judged.get_or_insert_default();
        judged.wishes.add(program, judgement.keep);
        judged.ends.extend(judgement.end.map(|token| End { program: Arc::clone(program), token }));
    }

    /// Whether its store may begin.
    pub(crate) fn keeping(&mut self) -> Keeping {
        self.wishes.keeping()
    }

    /// The command is over: what must be durable before it is answered. That includes what it has not waited for, as it did not go to
    /// its store.
    pub(crate) fn end(mut self, is_good: bool) -> Wishes {
        let mut wishes = std::mem::take(&mut self.wishes);
        if !is_good {
            // It has done nothing that depends on them.
            wishes.0.clear();
        }
        for End { program, token } in std::mem::take(&mut self.ends) {
            let wish = program.ended(token, is_good);
            wishes.add(&program, wish);
        }
        wishes
    }
}

impl Drop for Judged {
    /// It was aborted, or has not begun after all.
    fn drop(&mut self) {
        for End { program, token } in std::mem::take(&mut self.ends) {
            let _ = program.ended(token, false);
        }
    }
}
