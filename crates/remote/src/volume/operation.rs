//! One request, done by the client of the other server.

use std::io;

use sanwire_buffer::{Frame, Slices};
use sanwire_initiator::{Volume, VolumeError};
use sanwire_store::{Access, Allocation, Completion, ErrorKind, Outcome, Request, StoreError};

/// Zeroes that are written at a time where the other server makes none.
const ZEROES_BYTES: usize = 256 << 10;

pub(super) async fn perform(volume: &Volume, request: Request) -> Completion {
    let (offset_bytes, _) = request.range_bytes();
    let access = match request {
        Request::Read { .. } | Request::Allocation { .. } => Access::Read,
        _ => Access::Write,
    };
    let result = match request {
        Request::Read { offset_bytes, buffer } => read(volume, offset_bytes, buffer).await.map(Outcome::Read),
        Request::Write { offset_bytes, data } => write(volume, offset_bytes, &data).await.map(|()| Outcome::Done),
        Request::Flush => match volume.flush().await {
            // Who has no command for that has nothing to flush.
            Err(VolumeError::Unsupported) => Ok(Outcome::Done),
            flushed => flushed.map(|()| Outcome::Done),
        },
        Request::Discard { offset_bytes, length_bytes } => {
            volume.discard(offset_bytes, length_bytes).await.map(|()| Outcome::Done)
        }
        Request::WriteZeroes { offset_bytes, length_bytes } => {
            zero(volume, offset_bytes, length_bytes).await.map(|()| Outcome::Done)
        }
        Request::Allocation { offset_bytes, length_bytes } => {
            volume.allocation(offset_bytes, length_bytes).await.map(|runs| {
                let first = runs.first().map_or((true, length_bytes), |run| (run.is_mapped, run.length_bytes));
                let length_bytes = first.1.clamp(1, length_bytes.max(1));
                Outcome::Allocated(Allocation { is_mapped: first.0, length_bytes })
            })
        }
    };
    result.map_err(|source| error(access, offset_bytes, source))
}

/// The longest transfer that the volume takes now.
fn part_max_bytes(volume: &Volume) -> usize {
    let info = volume.info();
    info.transfer_max_bytes.max(info.block_bytes) as usize
}

async fn read(volume: &Volume, offset_bytes: u64, mut buffer: Frame) -> Result<Frame, VolumeError> {
    let part_bytes = part_max_bytes(volume);
    if buffer.len() <= part_bytes {
        return volume.read(offset_bytes, buffer).await;
    }
    let mut done = 0;
    while done < buffer.len() {
        let length = part_bytes.min(buffer.len() - done);
        let frame = volume.read(offset_bytes + done as u64, volume.buffer(length).await?).await?;
        buffer[done..done + length].copy_from_slice(&frame[..length]);
        done += length;
    }
    Ok(buffer)
}

async fn write(volume: &Volume, offset_bytes: u64, data: &Slices) -> Result<(), VolumeError> {
    let part_bytes = part_max_bytes(volume);
    let mut done = 0;
    while done < data.len() {
        let end = data.len().min(done + part_bytes);
        // The client keeps what is not flushed, and the server's memory is for what is under way.
        let mut frame = volume.buffer(end - done).await?;
        data.slice(done..end).copy_to(&mut frame[..end - done]);
        volume.write(offset_bytes + done as u64, frame.freeze()).await?;
        done = end;
    }
    Ok(())
}

async fn zero(volume: &Volume, offset_bytes: u64, length_bytes: u64) -> Result<(), VolumeError> {
    match volume.write_zeroes(offset_bytes, length_bytes).await {
        Err(VolumeError::Unsupported) => {}
        zeroed => return zeroed,
    }
    let zeroes = Slices::from(vec![0; ZEROES_BYTES.min(usize::try_from(length_bytes).unwrap_or(ZEROES_BYTES))]);
    let mut done = 0;
    while done < length_bytes {
        let length = (zeroes.len() as u64).min(length_bytes - done);
        write(volume, offset_bytes + done, &zeroes.slice(0..length as usize)).await?;
        done += length;
    }
    Ok(())
}

fn error(access: Access, offset_bytes: u64, source: VolumeError) -> StoreError {
    let kind = match &source {
        VolumeError::Medium { .. } if access == Access::Read => ErrorKind::Unreadable,
        VolumeError::Medium { .. } | VolumeError::WritesLost { .. } => ErrorKind::Unwritable,
        VolumeError::NoSpace => ErrorKind::Full,
        VolumeError::ReadOnly => ErrorKind::ReadOnly,
        VolumeError::Unsupported => ErrorKind::Unsupported,
        VolumeError::OutOfRange { .. } => ErrorKind::OutOfRange,
        VolumeError::Disconnected { .. } | VolumeError::TimedOut { .. } | VolumeError::Closed => ErrorKind::Gone,
        VolumeError::Misaligned { .. }
        | VolumeError::TooLong { .. }
        | VolumeError::Reserved
        | VolumeError::Protocol { .. } => ErrorKind::Other,
    };
    let offset_bytes =
        if let VolumeError::Medium { offset_bytes, .. } = &source { *offset_bytes } else { offset_bytes };
    StoreError { kind, offset_bytes, source: Some(io::Error::other(source)) }
}
