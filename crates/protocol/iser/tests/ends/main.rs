//! Both ends of iSER against each other in one thread, over streams that come in pieces and are cut; and each of them against somebody
//! who breaks the rules.

mod beginnings;
mod by_adapter;
mod cables;
mod depths;
mod dissection;
mod exchange;
mod host;
mod hostile_by_adapter;
mod hostile_initiator;
mod hostile_sharing;
mod hostile_target;
mod keys;
mod nudge;
mod odd;
mod older;
mod pair;
mod raw;
mod resets;
mod revisions;
mod rounds;
mod segments;
mod world;
