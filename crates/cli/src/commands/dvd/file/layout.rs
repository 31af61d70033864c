//! Where the bytes of a file lie in its file system, if others may use them there.

use std::fs::File;

use sanwire_core::Size;
use sanwire_io::extents::{FileExtent, extents};
use sanwire_server::RegionStatus;

/// Regions of a derived volume, at the most.
const REGIONS_MAX: usize = 1024;

/// Why bytes of a file are not to be used where they lie, and what to do. Each of these is a flag of an extent.
const UNFIT: [(u32, &str); 8] = [
    (
        FileExtent::UNWRITTEN,
        "was reserved and never written: on the disk are bytes of files that were deleted, for everybody to read; write it once (`dd \
         if=/dev/zero conv=notrunc ...`, or copy the file to itself)",
    ),
    (FileExtent::DELAYED, "has no place on the disk yet: wait until what writes the file is done (`sync`)"),
    (
        FileExtent::ENCODED,
        "is compressed, so that the disk does not have what the file has: switch that off and write it anew",
    ),
    (FileExtent::ENCRYPTED, "is encrypted, so that the disk does not have what the file has"),
    (FileExtent::INLINE, "lies among what the file system keeps about the file: make the file longer than a block"),
    (FileExtent::TAIL, "lies in one block with bytes of other files"),
    (FileExtent::UNALIGNED, "does not begin or end with a block"),
    (FileExtent::UNKNOWN, "is at a place that the file system does not tell"),
];

/// Where the bytes of a file lie in its file system, in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    /// How long the file is.
    pub(super) size_bytes: u64,
    /// Neighbours are one.
    pub(super) pieces: Vec<Piece>,
}

/// Bytes that lie together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

impl Layout {
    /// That of a file now, in whole blocks of its disk.
    pub(super) fn of(file: &File, block_bytes: u32, writable: bool) -> Result<Layout, String> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::FileTooLarge => "it is in more pieces than anybody could use".to_owned(),
            _ => format!("its file system does not tell where it lies: {error}"),
        };
        let size_bytes = file.metadata().map_err(failed)?.len();
        if size_bytes == 0 {
            return Err("it is empty: a disk has a block at least".to_owned());
        }
        let length_bytes = size_bytes.next_multiple_of(block_bytes.into());
        let pieces = pieces(&extents(file, length_bytes).map_err(failed)?, length_bytes, writable)?;
        Ok(Layout { size_bytes, pieces })
    }

    /// As regions of a disk on which the file system begins there.
    pub(super) fn regions(&self, start_bytes: u64) -> Vec<RegionStatus> {
        let region = |piece: &Piece| RegionStatus {
            offset_bytes: start_bytes + piece.offset_bytes,
            length_bytes: piece.length_bytes,
        };
        self.pieces.iter().map(region).collect()
    }

    /// What differs from how it was; `None` if nothing does.
    pub(super) fn difference(&self, before: &Layout) -> Option<String> {
        if self.size_bytes != before.size_bytes {
            let [now, then] = [self, before].map(|layout| layout.size_bytes);
            return Some(format!("it has {now} bytes now, and had {then}"));
        }
        if self.pieces == before.pieces {
            return None;
        }
        let mut at = 0;
        for (now, then) in self.pieces.iter().zip(&before.pieces) {
            if now.offset_bytes != then.offset_bytes {
                break;
            }
            at += now.length_bytes.min(then.length_bytes);
            if now != then {
                break;
            }
        }
        Some(format!("from its byte {at} on it lies at another place on its disk"))
    }
}

/// Joins what lies together. The end of the last extent is cut, where it is longer than what is asked for.
fn pieces(found: &[FileExtent], length_bytes: u64, writable: bool) -> Result<Vec<Piece>, String> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = 0;
    for extent in found {
        let end = extent.offset_bytes.saturating_add(extent.length_bytes).min(length_bytes);
        if extent.offset_bytes > at {
            break;
        }
        if end <= at {
            continue;
        }
        let shown = || format!("{} from its byte {at} on", Size(end - at));
        if let Some((_, why)) = UNFIT.iter().find(|(flag, _)| extent.flags & flag != 0) {
            return Err(format!("{} {why}", shown()));
        }
        if writable && extent.flags & FileExtent::SHARED != 0 {
            return Err(format!(
                "{} is shared with other files, which would change with it: leave --writable out, or copy the file (`cp --reflink=never`)",
                shown()
            ));
        }
        let offset_bytes = extent.physical_bytes.saturating_add(at - extent.offset_bytes);
        match pieces.last_mut() {
            Some(last) if last.offset_bytes + last.length_bytes == offset_bytes => last.length_bytes += end - at,
            _ => pieces.push(Piece { offset_bytes, length_bytes: end - at }),
        }
        at = end;
    }
    if at < length_bytes {
        return Err(format!(
            "it has a hole at its byte {at}: a disk needs a place for each block, so write zeroes there (`fallocate` does not help, since what \
             it reserves is not written)"
        ));
    }
    match pieces.len() {
        count if count > REGIONS_MAX => Err(format!(
            "it lies in {count} pieces, and a derived volume has {REGIONS_MAX} at the most: have them joined (`e4defrag`, `xfs_fsr`), or copy the \
             file (`filefrag` shows them)"
        )),
        _ => Ok(pieces),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    /// Extents of so many blocks each, at these places, in blocks, with these flags.
    fn found(extents: &[(u64, u64, u64, u32)]) -> Vec<FileExtent> {
        let extent = |&(at, physical, length, flags): &(u64, u64, u64, u32)| FileExtent {
            offset_bytes: at * BLOCK,
            physical_bytes: physical * BLOCK,
            length_bytes: length * BLOCK,
            flags,
        };
        extents.iter().map(extent).collect()
    }

    fn placed(pieces: &[(u64, u64)]) -> Vec<Piece> {
        let piece = |&(at, length): &(u64, u64)| Piece { offset_bytes: at * BLOCK, length_bytes: length * BLOCK };
        pieces.iter().map(piece).collect()
    }

    #[test]
    fn what_lies_together_is_one_piece_and_the_end_is_cut() {
        let all = found(&[(0, 100, 2, 0), (2, 102, 3, 0), (5, 50, 8, FileExtent::SHARED)]);
        assert_eq!(pieces(&all, 10 * BLOCK, false).unwrap(), placed(&[(100, 5), (50, 5)]));
        let mut cut = placed(&[(100, 5), (50, 5)]);
        cut[1].length_bytes -= 512;
        assert_eq!(pieces(&all, 10 * BLOCK - 512, false).unwrap(), cut);
        // Reserved beyond the end of the file.
        let reserved = found(&[(0, 100, 2, 0), (2, 102, 3, FileExtent::UNWRITTEN)]);
        assert_eq!(pieces(&reserved, 2 * BLOCK, true).unwrap(), placed(&[(100, 2)]));
    }

    #[test]
    fn what_others_must_not_use_is_refused() {
        for (flag, part) in [
            (FileExtent::UNWRITTEN, "was reserved and never written"),
            (FileExtent::DELAYED, "has no place on the disk yet"),
            (FileExtent::DELAYED | FileExtent::UNKNOWN, "has no place on the disk yet"),
            (FileExtent::ENCODED, "compressed"),
            (FileExtent::ENCODED | FileExtent::ENCRYPTED, "compressed"),
            (FileExtent::ENCRYPTED, "encrypted"),
            (FileExtent::INLINE | FileExtent::UNALIGNED, "longer than a block"),
            (FileExtent::TAIL | FileExtent::UNALIGNED, "bytes of other files"),
            (FileExtent::UNALIGNED, "begin or end with a block"),
            (FileExtent::UNKNOWN, "does not tell"),
        ] {
            for writable in [false, true] {
                let error = pieces(&found(&[(0, 9, 1, 0), (1, 20, 2, flag)]), 3 * BLOCK, writable).unwrap_err();
                assert!(error.starts_with("8 KiB from its byte 4096 on ") && error.contains(part), "{error}");
            }
        }
        let shared = found(&[(0, 9, 1, FileExtent::SHARED)]);
        assert!(pieces(&shared, BLOCK, false).is_ok());
        assert!(pieces(&shared, BLOCK, true).unwrap_err().contains("shared with other files"));
        for holes in [found(&[]), found(&[(0, 9, 1, 0)]), found(&[(0, 9, 1, 0), (2, 11, 1, 0)]), found(&[(1, 9, 2, 0)])]
        {
            let at = holes.first().filter(|first| first.offset_bytes == 0).map_or(0, |first| first.length_bytes);
            let error = pieces(&holes, 3 * BLOCK, false).unwrap_err();
            assert!(error.starts_with(&format!("it has a hole at its byte {at}:")), "{error}");
        }
    }

    #[test]
    fn a_file_in_more_pieces_than_regions_is_refused() {
        let scattered = |count: u64| -> Vec<_> { (0..count).map(|at| (at, 2 * at, 1, 0)).collect() };
        assert_eq!(pieces(&found(&scattered(1024)), 1024 * BLOCK, false).unwrap().len(), 1024);
        let error = pieces(&found(&scattered(1025)), 1025 * BLOCK, false).unwrap_err();
        assert!(error.contains("it lies in 1025 pieces"), "{error}");
    }

    #[test]
    fn what_differs_is_told() {
        let layout = |size_bytes, pieces: &[(u64, u64)]| Layout { size_bytes, pieces: placed(pieces) };
        let before = layout(8 * BLOCK, &[(100, 5), (50, 3)]);
        assert_eq!(before.difference(&before), None);
        let told = |now: Layout| now.difference(&before).unwrap();
        assert_eq!(told(layout(9, &[(100, 5)])), "it has 9 bytes now, and had 32768");
        for (pieces, at) in [
            (&[(100, 5), (60, 3)][..], 5),
            (&[(100, 4), (60, 1), (50, 3)], 4),
            (&[(99, 5), (50, 3)], 0),
            (&[(100, 5), (50, 1), (70, 2)], 6),
        ] {
            assert_eq!(
                told(layout(8 * BLOCK, pieces)),
                format!("from its byte {} on it lies at another place on its disk", at * BLOCK)
            );
        }
        assert_eq!(
            before.regions(1 << 20)[1],
            RegionStatus { offset_bytes: (1 << 20) + 50 * BLOCK, length_bytes: 3 * BLOCK }
        );
    }
}
