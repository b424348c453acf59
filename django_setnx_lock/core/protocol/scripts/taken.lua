-- Whether anybody holds it, where a value may be over.
local NAME, META, INDEX = KEYS[1], KEYS[2], KEYS[3]
local BESIDE = string.sub(META, 1, -5)
--- lib
local value = standing()
return value == '' and is_wrong() or (value and 1 or 0)
