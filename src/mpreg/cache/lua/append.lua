-- Adds to a text, to bytes, or one element to a list, without looking at what is there already.
-- ARGV: 'a' at the end or 'p' at the front; what, in MessagePack; '1' to make it; TTL or ''; meta; bytes at most
-- Returns {1, version, now, old value or nil, new value}; {0} nothing is there; {-2} nothing to add to; {-4} too large
if structure then
  return {WRONG_TYPE}
end
if not there and ARGV[3] ~= '1' then
  return {0, 0, now, false}
end

-- The kind of a text, bytes or a list: how many, and where its contents begin.
local function open(data)
  local first = data:byte(1)
  if first >= 0xa0 and first <= 0xbf then
    return 'text', first - 0xa0, 2
  elseif first >= 0x90 and first <= 0x9f then
    return 'list', first - 0x90, 2
  elseif first == 0xd9 or first == 0xc4 then
    return first == 0xd9 and 'text' or 'bytes', data:byte(2), 3
  elseif first == 0xda or first == 0xc5 or first == 0xdc then
    return first == 0xda and 'text' or first == 0xc5 and 'bytes' or 'list', struct.unpack('>I2', data, 2), 4
  elseif first == 0xdb or first == 0xc6 or first == 0xdd then
    return first == 0xdb and 'text' or first == 0xc6 and 'bytes' or 'list', struct.unpack('>I4', data, 2), 6
  end
  return nil
end

local SHORT = {text = 0xa0, list = 0x90}
local FITS = {text = 31, list = 15}
local MARKS = {text = {0xd9, 0xda, 0xdb}, bytes = {0xc4, 0xc5, 0xc6}, list = {nil, 0xdc, 0xdd}}

local function head(kind, count)
  if SHORT[kind] and count <= FITS[kind] then
    return string.char(SHORT[kind] + count)
  elseif count <= 0xff and MARKS[kind][1] then
    return string.char(MARKS[kind][1], count)
  elseif count <= 0xffff then
    return string.char(MARKS[kind][2]) .. struct.pack('>I2', count)
  end
  return string.char(MARKS[kind][3]) .. struct.pack('>I4', count)
end

local kind, count, at = open(ARGV[2])
local added, added_count = ARGV[2], 1
local value
if not there then
  value = (kind == 'text' or kind == 'bytes') and ARGV[2] or head('list', 1) .. ARGV[2]
else
  local old_kind, old_count, old_at = open(old_value)
  if not old_kind or (old_kind ~= 'list' and old_kind ~= kind) then
    return {WRONG_TYPE}
  end
  if old_kind ~= 'list' then
    added, added_count = ARGV[2]:sub(at), count
  end
  local inside = old_value:sub(old_at)
  value = head(old_kind, old_count + added_count) .. (ARGV[1] == 'a' and inside .. added or added .. inside)
end
if #value > tonumber(ARGV[6]) then
  return {TOO_LARGE}
end
return {1, change(value, ARGV[4], ARGV[5]), now, old_value, value}
