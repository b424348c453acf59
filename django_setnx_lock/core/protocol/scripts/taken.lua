-- Whether anybody holds it, where a value may be over.
--- lib
local value = standing()
return value == true and is_wrong() or (value and 1 or 0)
