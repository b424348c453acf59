-- Which of the next names may be those of locks that are searched for? Writes nothing, and says no more than that.
-- KEYS  [1 index; without it, all keys are looked through]
-- ARGV  1 cursor  2 how many names at once  3 what a name begins with  4 how many bytes of it precede the key
--       5 the same as a pattern  6 what each lock has to have, JSON: [{texts}, whether in its key, too], the texts in its holder's record
-- Reply {next cursor, how many names were looked at, names}
local index, start, prefix, wanted = KEYS[1], ARGV[3], ARGV[4] + 0, cjson.decode(ARGV[6])
local onward, listed, step
if index then
  onward, listed = unpack(redis.call('ZSCAN', index, ARGV[1], 'COUNT', ARGV[2]))
  step = 2 -- behind each its score
else
  onward, listed = unpack(redis.call('SCAN', ARGV[1], 'MATCH', ARGV[5], 'COUNT', ARGV[2]))
  step = 1
end

local function has_one(text, parts)
  for _, part in ipairs(parts) do
    if string.find(text, part, 1, true) then
      return true
    end
  end
end

local function stem(name)
  local tag = string.find(name, '{', 1, true) and string.match(name, '^[^{]*{([^}]+)}')
  return tag and '{' .. tag .. '}:' .. name or '{' .. name .. '}'
end

local function string_at(name)
  local found = redis.pcall('GET', name)
  return type(found) == 'string' and found or ''
end

-- Whether a record of those who hold it together with others has one of them.
local function has_other(name, parts)
  local others = redis.pcall('HVALS', stem(name) .. ':holders')
  for _, one in ipairs(others.err and {} or others) do
    if has_one(one, parts) then
      return true
    end
  end
end

local function fits(name)
  if string.sub(name, 1, #start) ~= start then
    return false
  end
  local key, known = string.sub(name, prefix + 1), nil
  for _, one in ipairs(wanted) do
    if not (one[2] and has_one(key, one[1])) then
      known = known or string_at(stem(name) .. ':meta')
      if not has_one(known, one[1]) then
        local owner = string.match(known, '^%d+ %d+ (%l+:)')
        if not ((owner == READERS or owner == PERMITS) and has_other(name, one[1])) then
          return false
        end
      end
    end
  end
  return true
end

local names = {}
for number = 1, #listed, step do
  if fits(listed[number]) then
    names[#names + 1] = listed[number]
  end
end
return {onward, #listed / step, names}
