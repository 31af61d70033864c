-- iSER over iWARP (RFC 7145), as docs/protocols/iser.md describes it. Wireshark reads MPA, DDP and RDMAP by itself, and iSER on InfiniBand
-- alone: here what a Send carries is read, if it looks like iSER, and the PDU in it is given to Wireshark's dissector of iSCSI.

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

local HEADER_BYTES = 28
local PDU_HEADER_BYTES = 48

local iscsi = Dissector.get("iscsi")

local function kind_of(buffer)
    return math.floor(buffer(0, 1):uint() / 16)
end

function iser.dissector(buffer, pinfo, tree)
    local header = buffer(0, HEADER_BYTES)
    local branch = tree:add(iser, header)
    branch:add(kind, header(0, 1))
    if kind_of(buffer) == 1 then
        branch:add(write_valid, header(0, 1))
        branch:add(read_valid, header(0, 1))
        branch:add(write_stag, header(4, 4))
        branch:add(write_offset, header(8, 8))
        branch:add(read_stag, header(16, 4))
        branch:add(read_offset, header(20, 8))
        pinfo.cols.protocol = "iSER"
        iscsi:call(buffer(HEADER_BYTES):tvb(), pinfo, tree)
    else
        branch:add(rejected, header(0, 1))
        branch:add(versions, header(1, 1))
        branch:add(depth, header(2, 2))
        pinfo.cols.protocol = "iSER"
        pinfo.cols.info = kinds[kind_of(buffer)]
    end
    return buffer:len()
end

-- Whether it is as long as its own headers say.
local function is_one(buffer)
    local length = buffer:reported_length_remaining()
    if length < HEADER_BYTES or kinds[kind_of(buffer)] == nil then
        return false
    end
    if kind_of(buffer) ~= 1 then
        return length == HEADER_BYTES
    end
    if length < HEADER_BYTES + PDU_HEADER_BYTES or buffer(1, 3):uint() ~= 0 then
        return false
    end
    local additional = buffer(HEADER_BYTES + 4, 1):uint() * 4
    local data = buffer(HEADER_BYTES + 5, 3):uint()
    local whole = HEADER_BYTES + PDU_HEADER_BYTES + additional + data
    return length >= whole and length < whole + 4
end

iser:register_heuristic("iwarp_ddp_rdmap", function(buffer, pinfo, tree)
    if not is_one(buffer) then
        return false
    end
    iser.dissector(buffer, pinfo, tree)
    return true
end)
