//! What a target did not take.

/// Messages that were not obeyed, by reasons.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Not of the protocol, or cut short.
    pub malformed: u64,
    /// Another version.
    pub other_version: u64,
    /// From stations that may not.
    pub not_allowed: u64,
    /// Commands beyond the buffers that are announced.
    pub beyond_window: u64,
    /// Commands that were under way already.
    pub repeated: u64,
    /// Commands for which there was no memory.
    pub without_memory: u64,
    /// From more stations than there is room for.
    pub crowded: u64,
    /// Commands for targets that others have reserved.
    pub reserved: u64,
    /// Changes of masks and reservations that name more stations than there is room for.
    pub lists_full: u64,
    /// Stations whose settings were given up, because so many have set something.
    pub settings_given_up: u64,
}

impl Counters {
    /// Each with its reason.
    #[must_use]
    pub fn reasons(&self) -> [(&'static str, u64); 10] {
        [
            ("malformed AoE message", self.malformed),
            ("another version of AoE", self.other_version),
            ("AoE station not allowed", self.not_allowed),
            ("beyond the AoE buffer count", self.beyond_window),
            ("AoE command given twice", self.repeated),
            ("no memory for an AoE command", self.without_memory),
            ("too many AoE stations", self.crowded),
            ("AoE target reserved", self.reserved),
            ("too many stations in an AoE list", self.lists_full),
            ("settings of an AoE station given up", self.settings_given_up),
        ]
    }
}
