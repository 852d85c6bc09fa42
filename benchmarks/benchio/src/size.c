#include "size.h"

#include <ctype.h>
#include <string.h>

#define LARGEST ((uint64_t)INT64_MAX)

bool size_multiply(uint64_t a, uint64_t b, uint64_t *product) {
    if (a != 0 && b > LARGEST / a)
        return false;
    *product = a * b;
    return true;
}

const char *count_parse(const char *text, uint64_t *count) {
    uint64_t value = 0;
    if (*text == '\0')
        return "expected a whole number";
    for (; *text != '\0'; text++) {
        if (!isdigit((unsigned char)*text))
            return "expected a whole number";
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (LARGEST - digit) / 10)
            return "the number is too large";
        value = value * 10 + digit;
    }
    *count = value;
    return NULL;
}

/* The factor of a suffix: none, k m g t p with optional `ib` (2^10...) or `b` (10^3...); 0 where it is none.
 */
static uint64_t suffix_factor(const char *suffix) {
    static const char prefixes[] = "kmgtp";
    char lower[4] = "";
    size_t length = strlen(suffix);
    if (length > 3)
        return 0;
    for (size_t i = 0; i < length; i++)
        lower[i] = (char)tolower((unsigned char)suffix[i]);
    if (length == 0 || strcmp(lower, "b") == 0)
        return 1;
    const char *prefix = strchr(prefixes, lower[0]);
    bool decimal = strcmp(lower + 1, "b") == 0;
    if (prefix == NULL || (lower[1] != '\0' && !decimal && strcmp(lower + 1, "ib") != 0))
        return 0;
    uint64_t factor = 1;
    for (const char *p = prefixes; p <= prefix; p++)
        factor *= decimal ? 1000 : 1024;
    return factor;
}

const char *size_parse(const char *text, uint64_t *bytes) {
    uint64_t digits = 0, scale = 1;
    bool point = false, any = false;
    for (; isdigit((unsigned char)*text) || (*text == '.' && !point); text++) {
        if (*text == '.') {
            point = true;
            if (!any || !isdigit((unsigned char)text[1]))
                return "expected a size such as 4096, 1m (2^20 bytes), 1mb (10^6 bytes) or 1.5g";
            continue;
        }
        uint64_t digit = (uint64_t)(*text - '0');
        if (digits > (LARGEST - digit) / 10 || (point && scale > LARGEST / 10))
            return "the size is too large";
        digits = digits * 10 + digit;
        scale *= point ? 10 : 1;
        any = true;
    }
    uint64_t factor = any ? suffix_factor(text) : 0;
    if (factor == 0)
        return "expected a size such as 4096, 1m (2^20 bytes), 1mb (10^6 bytes) or 1.5g";
    uint64_t product;
    if (!size_multiply(digits, factor, &product))
        return "the size is too large";
    if (product % scale != 0)
        return "it is not a whole number of bytes";
    *bytes = product / scale;
    return NULL;
}

const char *sizes_parse(const char *text, uint64_t sizes[3], int *n) {
    char one[32];
    *n = 0;
    for (;;) {
        size_t length = strcspn(text, "xX");
        if (*n == 3 || length >= sizeof one)
            return "expected one to three sizes joined by x, such as 128x128x64";
        memcpy(one, text, length);
        one[length] = '\0';
        const char *reason = size_parse(one, &sizes[*n]);
        if (reason != NULL)
            return reason;
        if (sizes[*n] == 0)
            return "a dimension must be at least 1";
        (*n)++;
        if (text[length] == '\0')
            return NULL;
        text += length + 1;
    }
}
