-- Numbers in MessagePack. Lua has doubles only: whole numbers are exact up to 2^53, and none beyond that is made.
local EXACT = 9007199254740991

-- The number and whether it is a whole one; nil for anything else, false for a whole one that doubles can't hold.
local function number_of(data)
  local first = data:byte(1)
  if first < 0x80 or first >= 0xe0 or (first >= 0xcc and first <= 0xd3) then
    local number = cmsgpack.unpack(data)
    return math.abs(number) <= EXACT and number, true
  elseif first == 0xca then
    return struct.unpack('>f', data, 2), false
  elseif first == 0xcb then
    return struct.unpack('>d', data, 2), false
  end
  return nil
end

local function pack_number(number, whole)
  return whole and cmsgpack.pack(number) or '\203' .. struct.pack('>d', number)
end

-- data + by; nil and why not. `by` is text, and whole if it has only digits.
local function add(data, by)
  local number, whole = number_of(data)
  if number == nil then
    return nil, -2
  end
  local by_whole = by:find('^-?%d+$') ~= nil
  by = tonumber(by)
  local sum = number and number + by
  if not sum or sum ~= sum or math.abs(sum) == math.huge or (whole and by_whole and math.abs(sum) > EXACT) then
    return nil, -3
  end
  return pack_number(sum, whole and by_whole)
end
