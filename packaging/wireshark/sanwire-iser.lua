-- iSER over iWARP (RFC 7145, and RFC 5046 before it), as docs/protocols/iser.md describes it. Wireshark reads MPA, DDP and RDMAP by itself,
-- and iSER on InfiniBand alone: here what a Send carries is read, if it looks like iSER, and the PDU in it is given to Wireshark's dissector
-- of iSCSI.

local iser = Proto("sanwire_iser", "iSER over iWARP")

local kinds = { [1] = "PDU", [2] = "Hello", [3] = "HelloReply" }

local kind = ProtoField.uint8("sanwire_iser.kind", "Kind", base.DEC, kinds, 0xf0)
local write_valid = ProtoField.bool("sanwire_iser.wsv", "Write STag valid", 8, nil, 0x08)
local read_valid = ProtoField.bool("sanwire_iser.rsv", "Read STag valid", 8, nil, 0x04)
local rejected = ProtoField.bool("sanwire_iser.rej", "Rejected", 8, nil, 0x01)
local write_stag = ProtoField.uint32("sanwire_iser.write_stag", "Write STag", base.HEX)
local write_offset = ProtoField.uint64("sanwire_iser.write_offset", "Write base offset", base.HEX)
local read_stag = ProtoField.uint32("sanwire_iser.read_stag", "Read STag", base.HEX)
local read_offset = ProtoField.uint64("sanwire_iser.read_offset", "Read base offset", base.HEX)
local versions = ProtoField.uint8("sanwire_iser.versions", "Versions, high and low", base.HEX)
local depth = ProtoField.uint16("sanwire_iser.depth", "IRD or ORD", base.DEC)

iser.fields = {
    kind, write_valid, read_valid, rejected, write_stag, write_offset, read_stag, read_offset, versions, depth,
}

-- The header of RFC 7145, and that of RFC 5046, which has no offsets.
local HEADER_BYTES = 28
local SHORT_HEADER_BYTES = 12
local PDU_HEADER_BYTES = 48

local iscsi = Dissector.get("iscsi")

local function kind_of(buffer)
    return math.floor(buffer(0, 1):uint() / 16)
end

-- Whether it is as long as its own headers say, if the first one has so many bytes.
local function is_one(buffer, header_bytes)
    local length = buffer:reported_length_remaining()
    if length < header_bytes or kinds[kind_of(buffer)] == nil then
        return false
    end
    if kind_of(buffer) ~= 1 then
        return length == header_bytes
    end
    if length < header_bytes + PDU_HEADER_BYTES or buffer(1, 3):uint() ~= 0 then
        return false
    end
    local additional = buffer(header_bytes + 4, 1):uint() * 4
    local data = buffer(header_bytes + 5, 3):uint()
    local whole = header_bytes + PDU_HEADER_BYTES + additional + data
    return length >= whole and length < whole + 4
end

-- How long the header is; nil for what is no iSER.
local function header_bytes_of(buffer)
    if is_one(buffer, HEADER_BYTES) then
        return HEADER_BYTES
    elseif is_one(buffer, SHORT_HEADER_BYTES) then
        return SHORT_HEADER_BYTES
    end
    return nil
end

function iser.dissector(buffer, pinfo, tree)
    local header_bytes = header_bytes_of(buffer)
    if header_bytes == nil then
        return 0
    end
    local header = buffer(0, header_bytes)
    local branch = tree:add(iser, header)
    branch:add(kind, header(0, 1))
    pinfo.cols.protocol = "iSER"
    if kind_of(buffer) ~= 1 then
        branch:add(rejected, header(0, 1))
        branch:add(versions, header(1, 1))
        branch:add(depth, header(2, 2))
        pinfo.cols.info = kinds[kind_of(buffer)]
        return buffer:len()
    end
    branch:add(write_valid, header(0, 1))
    branch:add(read_valid, header(0, 1))
    branch:add(write_stag, header(4, 4))
    if header_bytes == HEADER_BYTES then
        branch:add(write_offset, header(8, 8))
        branch:add(read_stag, header(16, 4))
        branch:add(read_offset, header(20, 8))
    else
        branch:add(read_stag, header(8, 4))
    end
    iscsi:call(buffer(header_bytes):tvb(), pinfo, tree)
    return buffer:len()
end

iser:register_heuristic("iwarp_ddp_rdmap", function(buffer, pinfo, tree)
    if header_bytes_of(buffer) == nil then
        return false
    end
    iser.dissector(buffer, pinfo, tree)
    return true
end)
