//! Copies between a volume and a pipe: in order, from the first byte to the last.

use std::io::{self, Read, Write};

use anyhow::Context;
use futures_util::stream::{FuturesOrdered, FuturesUnordered, TryStreamExt};
use sanwire_buffer::{Frame, Slice};

use super::Copied;
use super::end::End;
use super::parts::{Part, Parts};
use super::stage::{Run, runs};

static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Writes all of a volume to a pipe. The connection works on another thread: the pipe may keep this one waiting.
///
/// # Errors
/// When the volume cannot be read, or the pipe takes no more.
pub(crate) async fn write_out(
    from: &End,
    pipe: &mut impl Write,
    depth: u16,
    progress: impl Fn(u64),
) -> anyhow::Result<Copied> {
    let mut copied = Copied::default();
    let mut parts = Parts::new(from, 0..from.size_bytes(), from.chunk_bytes(depth));
    let mut flying = FuturesOrdered::new();
    loop {
        while flying.len() < usize::from(depth.max(1)) {
            let Some(part) = parts.next().await? else { break };
            flying.push_back(read(from, part));
        }
        let Some((part, frame)) = flying.try_next().await? else { break };
        match frame {
            Some(frame) => pipe.write_all(&frame).map(|()| copied.data_bytes += part.length_bytes()),
            None => write_zeroes(pipe, part.length_bytes()).map(|()| copied.zero_bytes += part.length_bytes()),
        }
        .context("writing to stdout")?;
        progress(part.range.end);
    }
    pipe.flush().context("writing to stdout")?;
    Ok(copied)
}

async fn read(from: &End, part: Part) -> anyhow::Result<(Part, Option<Frame>)> {
    if part.is_hole {
        return Ok((part, None));
    }
    let length = usize::try_from(part.length_bytes())?;
    let frame = from.buffer(length).await?.unwrap_or_else(|| Frame::from(vec![0; length]));
    let frame = from.read(part.range.start, frame).await?;
    Ok((part, Some(frame)))
}

fn write_zeroes(pipe: &mut impl Write, mut length_bytes: u64) -> io::Result<()> {
    while length_bytes > 0 {
        let now = length_bytes.min(ZEROES.len() as u64);
        pipe.write_all(&ZEROES[..now as usize])?;
        length_bytes -= now;
    }
    Ok(())
}

/// Writes what comes from a pipe to the start of a volume, until the pipe ends. The rest of its last block becomes zero.
///
/// # Errors
/// When the pipe cannot be read, has more than fits, or the volume takes no more.
pub(crate) async fn read_in(
    pipe: &mut impl Read,
    to: &End,
    depth: u16,
    progress: impl Fn(u64),
) -> anyhow::Result<Copied> {
    let mut copied = Copied::default();
    let mut flying = FuturesUnordered::new();
    let mut place_bytes = 0;
    loop {
        let mut chunk = Vec::new();
        pipe.take(to.chunk_bytes(depth)).read_to_end(&mut chunk).context("reading from stdin")?;
        let length_bytes = chunk.len() as u64;
        if length_bytes == 0 {
            break;
        }
        chunk.resize(usize::try_from(length_bytes.next_multiple_of(to.block_bytes()))?, 0);
        anyhow::ensure!(
            place_bytes + chunk.len() as u64 <= to.size_bytes(),
            "stdin has more than the {} bytes of {}, which has the first part now: make a volume of at least that size",
            to.size_bytes(),
            to.name()
        );
        let chunk = Frame::from(chunk).freeze();
        for Run { range, is_zero } in runs(&chunk) {
            while flying.len() >= usize::from(depth.max(1)) {
                flying.try_next().await?;
            }
            let run_bytes = (range.end as u64).min(length_bytes) - range.start as u64;
            *(if is_zero { &mut copied.zero_bytes } else { &mut copied.data_bytes }) += run_bytes;
            flying.push(put(to, place_bytes + range.start as u64, chunk.slice(range), is_zero));
        }
        place_bytes += length_bytes;
        progress(place_bytes);
    }
    while flying.try_next().await?.is_some() {}
    drop(flying);
    to.flush().await?;
    Ok(copied)
}

async fn put(to: &End, place_bytes: u64, data: Slice, is_zero: bool) -> anyhow::Result<()> {
    if is_zero && to.zero(place_bytes..place_bytes + data.len() as u64).await? {
        return Ok(());
    }
    to.write(place_bytes, data).await
}
