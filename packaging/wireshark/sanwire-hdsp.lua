-- HDSP (EtherType 0x6666). docs/protocols/hdsp.md is the specification. See the README beside this file for how to use it.

local hdsp = Proto("hdsp", "High Performance Disk Storage Protocol")
local bits = bit32 or bit

local HEADER_BYTES, PDU_BYTES, PCU_BYTES, TAG_BYTES, CRC_BYTES = 8, 28, 16, 16, 4

local PTYPES = { [1] = "PDU", [2] = "PCU" }
local DTYPES = { [0] = "Any", [1] = "ATA", [2] = "SATA", [3] = "SCSI" }
local ERRORS = {
    [0] = "None", [1] = "No such disk", [2] = "Disk type", [3] = "Full", [4] = "Unknown connection",
    [5] = "Not authentic", [6] = "Parameters", [7] = "Closing",
}
local CLASSES = {
    [1] = "Discovery", [2] = "Connection", [3] = "Flow", [4] = "Query", [5] = "Keep-alive", [6] = "Management",
}
local OPERATIONS = {
    [1] = { [1] = "Query", [2] = "Answer" },
    [2] = { [1] = "Request", [2] = "Challenge", [3] = "Proof", [5] = "Cookie", [6] = "Refusal", [9] = "Elsewhere" },
}
local COMMANDS = {
    [0x06] = "DATA SET MANAGEMENT", [0x20] = "READ SECTOR(S)", [0x24] = "READ SECTOR(S) EXT", [0x25] = "READ DMA EXT",
    [0x29] = "READ MULTIPLE EXT", [0x30] = "WRITE SECTOR(S)", [0x34] = "WRITE SECTOR(S) EXT", [0x35] = "WRITE DMA EXT",
    [0x39] = "WRITE MULTIPLE EXT", [0x3d] = "WRITE DMA FUA EXT", [0x44] = "ZERO EXT", [0xb0] = "SMART",
    [0xc4] = "READ MULTIPLE", [0xc5] = "WRITE MULTIPLE", [0xc8] = "READ DMA", [0xca] = "WRITE DMA",
    [0xe5] = "CHECK POWER MODE", [0xe7] = "FLUSH CACHE", [0xea] = "FLUSH CACHE EXT", [0xec] = "IDENTIFY DEVICE",
    [0xef] = "SET FEATURES",
}

local f = {
    version = ProtoField.uint8("hdsp.version", "Version", base.DEC, nil, 0xf0),
    r = ProtoField.bool("hdsp.r", "R: from the server", 8, nil, 0x08),
    e = ProtoField.bool("hdsp.e", "E: does not serve", 8, nil, 0x04),
    error = ProtoField.uint8("hdsp.error", "Error", base.DEC, ERRORS),
    ptype = ProtoField.uint8("hdsp.ptype", "PType", base.DEC, PTYPES, 0xf0),
    dtype = ProtoField.uint8("hdsp.dtype", "DType", base.DEC, DTYPES, 0x0f),
    disk = ProtoField.uint8("hdsp.disk", "Disk Address", base.DEC),
    server_port = ProtoField.uint16("hdsp.server_port", "Server Port", base.DEC),
    client_port = ProtoField.uint16("hdsp.client_port", "Client Port", base.DEC),

    w = ProtoField.bool("hdsp.w", "W: write", 8, nil, 0x80),
    long = ProtoField.bool("hdsp.long", "E: 48-bit address", 8, nil, 0x40),
    s = ProtoField.bool("hdsp.s", "S: write what is held", 8, nil, 0x20),
    first = ProtoField.bool("hdsp.first", "F: first packet", 8, nil, 0x10),
    last = ProtoField.bool("hdsp.last", "L: last packet", 8, nil, 0x08),
    group_end = ProtoField.bool("hdsp.group_end", "G: last of its group", 8, nil, 0x04),
    ack_now = ProtoField.bool("hdsp.ack_now", "A: to be acknowledged at once", 8, nil, 0x02),
    feature = ProtoField.uint8("hdsp.feature", "Feature", base.HEX),
    err = ProtoField.uint8("hdsp.err", "Err", base.HEX),
    count = ProtoField.uint8("hdsp.count", "Sector Count", base.DEC),
    cmd = ProtoField.uint8("hdsp.cmd", "CMD", base.HEX, COMMANDS),
    status = ProtoField.uint8("hdsp.status", "Status", base.HEX),
    lba = ProtoField.uint64("hdsp.lba", "LBA", base.DEC),
    upper_feature = ProtoField.uint8("hdsp.upper_feature", "Feature, upper byte", base.HEX),
    upper_count = ProtoField.uint8("hdsp.upper_count", "Sector Count, upper byte", base.DEC),
    before = ProtoField.uint8("hdsp.before", "Bytes of the CDB or sense data", base.DEC),
    length = ProtoField.uint16("hdsp.length", "Length of the data", base.DEC),
    offset = ProtoField.uint32("hdsp.offset", "Offset of the data", base.DEC),
    command = ProtoField.uint16("hdsp.command", "Command number", base.DEC),
    group = ProtoField.uint32("hdsp.group", "Group ID", base.DEC),
    serial = ProtoField.uint32("hdsp.serial", "Serial Number", base.DEC),
    data = ProtoField.bytes("hdsp.data", "Data (encrypted, where the connection is)"),
    code = ProtoField.bytes("hdsp.code", "Code (and padding)"),

    class = ProtoField.uint8("hdsp.class", "Operation Class", base.DEC, CLASSES),
    sealed = ProtoField.bool("hdsp.sealed", "Sealed"),
    operation_length = ProtoField.uint16("hdsp.operation_length", "Operation Code Length", base.DEC),
    number = ProtoField.uint32("hdsp.number", "Packet number", base.DEC),
    operation = ProtoField.uint8("hdsp.operation", "Operation Code", base.DEC),
    body = ProtoField.bytes("hdsp.body", "Operation (sealed)"),
    attempt = ProtoField.uint64("hdsp.attempt", "Attempt", base.HEX),
    client = ProtoField.bytes("hdsp.client", "Client id"),
    run = ProtoField.uint64("hdsp.run", "Run", base.HEX),
    epoch = ProtoField.uint32("hdsp.epoch", "Epoch", base.DEC),
    instance = ProtoField.bytes("hdsp.instance", "Instance"),
    packet_max = ProtoField.uint16("hdsp.packet_max", "Largest packet of the link", base.DEC),
    server_name = ProtoField.string("hdsp.server_name", "Server name"),
    noise = ProtoField.bytes("hdsp.noise", "Noise message"),
    mark = ProtoField.bytes("hdsp.mark", "Mark"),
    cookie = ProtoField.bytes("hdsp.cookie", "Cookie"),
    proof = ProtoField.bytes("hdsp.proof", "Proof of the refusal"),
    shards = ProtoField.uint16("hdsp.shards", "Shards", base.DEC),
    shard = ProtoField.uint16("hdsp.shard", "The client's shard", base.DEC),
    rest = ProtoField.bytes("hdsp.rest", "Rest"),
}
hdsp.fields = f

local short = ProtoExpert.new("hdsp.short", "The packet ends inside a field", expert.group.MALFORMED, expert.severity.ERROR)
local illegal = ProtoExpert.new("hdsp.illegal", "A value that is not allowed", expert.group.PROTOCOL, expert.severity.WARN)
hdsp.experts = { short, illegal }

-- Reads one field after the other. A packet that ends inside one ends the dissection.
local function reader(range, tree)
    local self = { at = 0 }
    function self.left()
        return range:len() - self.at
    end
    function self.take(length)
        if self.left() < length then
            tree:add_proto_expert_info(short)
            error({ "short" })
        end
        self.at = self.at + length
        return length > 0 and range:range(self.at - length, length) or nil
    end
    function self.add(field, length)
        local taken = self.take(length)
        if taken then
            tree:add(field, taken)
        end
        return taken
    end
    function self.optional(field)
        return self.add(field, self.take(1):uint())
    end
    return self
end

local function registers(tree, packet, from_server, flags)
    local is_long = bits.band(flags, 0x40) ~= 0
    tree:add(from_server and f.err or f.feature, packet:range(9, 1))
    tree:add(f.count, packet:range(10, 1))
    tree:add(from_server and f.status or f.cmd, packet:range(11, 1))
    local lba = UInt64(0, 0)
    for _, at in ipairs(is_long and { 17, 16, 15, 14, 13, 12 } or { 16, 14, 12 }) do
        lba = lba * 256 + packet:range(at, 1):uint()
    end
    tree:add(f.lba, packet:range(12, 6), lba)
    if not is_long and packet:range(13, 1):uint() + packet:range(15, 1):uint() + packet:range(17, 1):uint() > 0 then
        tree:add_proto_expert_info(illegal)
    end
    local code = packet:range(11, 1):uint()
    local has_data = from_server and bits.band(code, 0x08) ~= 0 or not from_server and bits.band(flags, 0x80) ~= 0
    local text = string.format("%s %s", from_server and string.format("status %02x", code)
        or COMMANDS[code] or string.format("command %02x", code), tostring(lba))
    if has_data then
        return 0, packet:range(10, 1):uint() * 512, text
    end
    return is_long and 2 or 0, 0, text
end

local function scsi(tree, packet, from_server)
    tree:add(f.before, packet:range(9, 1))
    if from_server then
        tree:add(f.status, packet:range(11, 1))
    end
    tree:add(f.length, packet:range(12, 2))
    tree:add(f.offset, packet:range(14, 4))
    return packet:range(9, 1):uint(), packet:range(12, 2):uint(), string.format("offset %d", packet:range(14, 4):uint())
end

local function pdu(tree, packet, from_server, dtype)
    if packet:len() < PDU_BYTES then
        tree:add_proto_expert_info(short)
        return "PDU malformed"
    end
    local flags = packet:range(8, 1)
    for _, field in ipairs({ f.w, f.long, f.s, f.first, f.last, f.group_end, f.ack_now }) do
        tree:add(field, flags)
    end
    local before, data, text
    if dtype == 3 then
        before, data, text = scsi(tree, packet, from_server)
    else
        before, data, text = registers(tree, packet, from_server, flags:uint())
    end
    tree:add(f.command, packet:range(18, 2))
    tree:add(f.group, packet:range(20, 4))
    tree:add(f.serial, packet:range(24, 4))
    local body = reader(packet:range(PDU_BYTES), tree)
    if before == 2 and dtype ~= 3 then
        body.add(f.upper_feature, 1)
        body.add(f.upper_count, 1)
        before = 0
    end
    body.add(f.data, before + data)
    body.add(f.code, body.left())
    return string.format("PDU %d/%d command %d %s", packet:range(20, 4):uint(), packet:range(24, 4):uint(),
        packet:range(18, 2):uint(), text)
end

local function discovery(code, body)
    if code == 1 then
        body.add(f.client, 16)
        body.optional(f.server_name)
    elseif code == 2 then
        body.add(f.instance, 16)
        body.add(f.packet_max, 2)
        body.optional(f.server_name)
    end
end

local function connection(code, body)
    body.add(f.attempt, 8)
    if code == 1 then
        body.add(f.client, 16)
        body.add(f.run, 8)
        body.add(f.epoch, 4)
        body.optional(f.server_name)
        body.add(f.noise, 32)
        body.optional(f.cookie)
    elseif code == 2 or code == 3 then
        body.add(code == 2 and f.mark or f.client, 16)
        body.add(f.noise, body.take(2):uint())
    elseif code == 5 then
        body.add(f.cookie, 16)
    elseif code == 6 then
        body.optional(f.proof)
    elseif code == 9 then
        body.add(f.shards, 2)
        body.add(f.shard, 2)
    end
end

local function pcu(tree, packet)
    local head = reader(packet:range(HEADER_BYTES), tree)
    local class = head.add(f.class, 1):uint()
    local sealed = head.add(f.sealed, 1):uint()
    local length = head.add(f.operation_length, 2):uint()
    head.add(f.number, 4)
    local name = CLASSES[class] or string.format("class %d", class)
    if sealed == 1 then
        head.add(f.body, length)
        head.add(f.code, head.left())
        return string.format("%s (sealed)", name)
    end
    local operation = head.take(length)
    head.add(f.code, head.left())
    local body = reader(operation, tree)
    local code = body.add(f.operation, 1):uint()
    if class == 1 then
        discovery(code, body)
    elseif class == 2 then
        connection(code, body)
    end
    if body.left() > 0 then
        body.add(f.rest, body.left())
    end
    return string.format("%s: %s", name, (OPERATIONS[class] or {})[code] or string.format("operation %d", code))
end

function hdsp.dissector(buffer, pinfo, root)
    local packet = buffer:range(0, buffer:captured_len())
    local tree = root:add(hdsp, packet)
    pinfo.cols.protocol = "HDSP"
    if packet:len() < HEADER_BYTES then
        tree:add_proto_expert_info(short)
        return buffer:len()
    end
    local flags = packet:range(0, 1)
    for _, field in ipairs({ f.version, f.r, f.e }) do
        tree:add(field, flags)
    end
    tree:add(f.error, packet:range(1, 1))
    tree:add(f.ptype, packet:range(2, 1))
    tree:add(f.dtype, packet:range(2, 1))
    tree:add(f.disk, packet:range(3, 1))
    tree:add(f.server_port, packet:range(4, 2))
    tree:add(f.client_port, packet:range(6, 2))
    local types = packet:range(2, 1):uint()
    local from_server = bits.band(flags:uint(), 8) ~= 0
    local read = bits.rshift(types, 4) == 1 and pdu or pcu
    local ok, text = pcall(read, tree, packet, from_server, bits.band(types, 0x0f))
    if not ok then
        if type(text) ~= "table" then
            error(text, 0)
        end
        text = "malformed"
    end
    local ports = string.format("[%d/%d]", packet:range(4, 2):uint(), packet:range(6, 2):uint())
    pinfo.cols.info = string.format("%s %s", text, ports)
    return buffer:len()
end

DissectorTable.get("ethertype"):add(0x6666, hdsp)
