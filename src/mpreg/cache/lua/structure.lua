-- What the verbs of structures share.
-- ARGV: verb, '1' to make what is not there, TTL in ms (0: as it is), elements at most, then what the verb takes
-- Returns {1, …} done; {0, …} there is none, and none was made; {-2} another type; {-3} out of range; {-4} too large
local VERB, CREATE, TTL, ELEMENTS_MAX = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3]), tonumber(ARGV[4])
local FIRST = 5

-- Whether a structure of this type is there; nil if something else is. What a delete left behind is nothing.
local function present(wanted)
  local found = redis.call('TYPE', KEY).ok
  if found == wanted then
    return true
  elseif found == 'none' then
    return false
  elseif found == 'string' then
    local r = read(HEADER_BYTES - 1)
    if not r or r.kind == 'T' then
      return false
    end
  end
  return nil
end

-- Before a write: make room for a structure where a deleted value was.
local function prepare(there)
  if not there then
    redis.call('DEL', KEY)
  end
end

local function settle()
  if TTL > 0 then
    redis.call('PEXPIRE', KEY, TTL)
  end
end

-- Calls a command with many arguments, in portions of an even number; the sum of its answers.
local function in_parts(command, list, first)
  local sum = 0
  for n = first or 1, #list, 4000 do
    sum = sum + redis.call(command, KEY, unpack(list, n, math.min(n + 3999, #list)))
  end
  return sum
end

-- More than Lua can unpack at once.
local function arguments(first)
  local found = {}
  for n = first, #ARGV do
    found[n - first + 1] = ARGV[n]
  end
  return found
end

-- Asks about many values, in portions; all answers as one list.
local function ask(command, values)
  local found = {}
  for n = 1, #values, 4000 do
    local part = redis.call(command, KEY, unpack(values, n, math.min(n + 3999, #values)))
    for k = 1, #part do
      found[n + k - 1] = part[k]
    end
  end
  return found
end
